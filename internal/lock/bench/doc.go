// Package bench compares the locks of this project with each other and with the libraries people use for the same:
// one lock and unlock at a time by 1, 16 and 64 workers, each on keys of its own and all on one key, on real servers,
// in one run. It is a module of its own so that the competitors are no dependency of the service.
//
//	go test -run '^$' -bench . -benchtime 2s .
package bench
