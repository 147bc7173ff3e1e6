// Package httpapi is what the world calls: it settles who may call, how a request is read and how an
// answer and a refusal look. Routes and types come from openapi.yaml; what the requests mean is for
// stock and inventory to say.
//
// Every request takes the same way, and it is the only one:
//
//	ServeHTTP   gives it an id, and in the end one log line and one observation, whatever happened
//	admit       bounds the headers and the work under way, finds out who calls, and whether he may
//	a handler   reads the body strictly, once, into a request of package stock; calls inventory; encodes
//	fail        turns any error into application/problem+json by the one table in problem.go
//
// It refuses to guess: a name it does not know, a number that is not exactly a whole one, a second header where
// there must be one, a query parameter nobody asked for are errors, with a pointer to the place.
package httpapi
