// Package robust records what clients of a running service saw while things broke, and checks it against what the ledger says
// afterwards. It settles whether a history is one that the service may have; it refuses to know how the service works: it has the
// answers, the times at which they came, and the rows.
//
// A history has one [Op] for each logical operation: one idempotency key, however often and to whichever process it was sent.
// Its time runs from its first sending to its last answer, on one monotonic clock. Whether an operation without a clear answer
// had its effect is read from the ledger.
//
// Two checkers look at it. [CheckOrder] knows that an item's version numbers its movements and checks everything, in
// O(n log n). [CheckLinear] gives the operations of each item to Porcupine, which knows nothing of our rows and looks for an order
// in which one plain counter could have given these answers.
package robust
