// Package client takes stock from Holdfast for an order service. It settles what is sent again and when; it refuses to
// guess how a request ended.
//
// Every call goes on until it has an answer that sending it again would not better, until its context ends, or until the
// client's patience is over. What is sent again is the same request under the same key, so that it has its effect once:
//
//	answer                                  what the client does
//	success                                 returns it; Replayed when an earlier attempt, or an earlier call, did it
//	problem, retry "after"                  waits for Retry-After, and sends it again
//	problem, outcome "unknown"              sends it again: the same key tells what happened
//	no answer, or none of Holdfast's        the same
//	any other problem                       returns it as an [*Error]
//
// Pauses double from 20 ms to 2 s, and are jittered. A call that ends without a final answer, after an attempt that may have had its
// effect, returns an [*UnknownError]: the order service keeps the key and calls again later, after a restart too; or it gives
// the order up with [Client.Void], after which nothing can happen under the key any more.
package client
