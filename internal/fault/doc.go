// Package fault breaks the wire between a client and a server on purpose: a TCP proxy in this process whose
// connections can be cut, held back, swallowed, delayed, or broken at exactly one request.
//
// It settles what "the connection broke" can mean for a request, because a client cannot tell and must be right in
// each case:
//
//	                     the server          the client
//	LoseRequest          never saw it        sees the connection end
//	LoseReply            did it              sees the connection end, after it was done
//	Disconnect           does it             sees the connection end, perhaps before it is done
//	HoldRequest, Stall   does it much later  waits, or gives up and is done by a ghost
//	Swallow              never saw it        waits
//	Cut                  perhaps             sees the connection end
//
// Each takes effect by a signal, never by a sleep: a request that matches, a reply that arrives, a call of the test.
//
// It refuses to know protocols: a request is what a client sent since the server last answered on that connection,
// which is exact where client and server take turns and a guess where they do not. It loses and delays bytes but never
// changes them, because TCP would not either.
package fault
