// Package sandbox runs real private servers on loopback, as child processes, for development, tests and experiments:
// Postgres and its standbys, Redis and its replicas, clusters and independent masters, etcd, ZooKeeper.
//
// # What it settles
//
// Where the programs come from: they are looked for in PATH and in the places of the distributions. Missing ones are
// installed with apt-get as root, without starting or enabling a service, or unpacked into the user's cache by anybody
// else. Elsewhere the error names the package to install.
//
// What a server is like: as durable as production, never evicting, in English, on a port of its own between 10100 and
// 21999 (a cluster's bus and an etcd's peers 10,000 above). Postgres runs as another user if we are root, and reaches
// its data even below a directory that is closed to that user.
//
// How it ends: Stop in order, Kill as a power cut of its machine would, but for the page cache. Pause freezes it with
// all its connections. Restart brings it back on the same data and port. A directory that was given is kept, and starts
// again after any end; a temporary one is removed by Stop, or by a later run if we were killed.
//
// That no server outlives us: on Linux the kernel kills it when we die, kill -9 included; what is paused then, and
// everything on other systems, is killed by a small shell that notices our end of a pipe closing (see guard). A server
// is in a process group of its own, so Ctrl-C reaches us and not the server behind our back.
//
// # For tests
//
// [Database] gives a test a migrated Postgres database of its own, and [RedisAddr] with [Prefix] its part of a Redis, on
// servers that all tests of a binary share. A test that stops, kills, pauses or flushes takes [OwnPostgres] or
// [OwnRedis]. [Tests] ends what was shared.
//
// # What it refuses
//
// To listen on anything but loopback, where every user of the machine can connect without a password: it is not for
// machines that are shared with people one does not trust. To use default ports, to share a directory between two
// processes, and to fake anything: there is no mock here. Nothing in it is meant for production.
package sandbox
