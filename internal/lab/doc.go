// Package lab runs the argument about distributed locks as experiments, on real servers, with real processes that
// are stopped and killed. An experiment shows an anomaly, which must really occur, and then what holds against it,
// which must hold in every run; a claim that nobody can see fail, or a protection that does, fails the lab.
//
// It settles how an experiment is told (question, claim, anomaly, protections, timeline) and how it is arranged:
//
//	servers     of internal/sandbox: shared ones for what leaves them whole, own ones for what breaks them
//	processes   children of this program, see [Process]; they stand still by SIGSTOP and die by SIGKILL
//	wires       proxies of internal/fault
//	clocks      a shim that is compiled on demand and preloaded into a server, see clock.go
//
// Everything waits for a signal: a child says how far it is, a key is seen to be gone. Where an experiment is about
// time, the time is part of what it shows.
//
// Unsafe ways to lock and to write are in this package only (naive.go, store.go): the product contains none.
package lab
