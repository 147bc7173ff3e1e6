// Package sandbox runs real private servers on loopback, as child processes: Postgres and Redis for development,
// tests and experiments.
//
// It settles where the programs come from (installed ones, else packages it fetches), that a server is production-like
// (durable, never evicting), that it can be stopped, killed, paused and started again on the same data and port, and
// that none outlives this process: a kill -9 of us ends them too. Data kept between runs starts again after any end.
//
// It refuses to run servers that anybody but this machine can reach, to use default ports, to start or enable a
// service of the system, to share a directory between two processes, and to fake anything: there is no mock here.
// Nothing in it is meant for production.
package sandbox
