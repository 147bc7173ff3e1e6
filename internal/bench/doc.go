// Package bench measures how many durable deductions a second a service makes, and checks that each of them was right.
//
// It settles how load is made (cheaply: the generator shares the machine with what it measures), what is counted, and what the
// ordinary service is that Holdfast is compared with. A measurement whose answers or whose ledger are wrong is an error.
package bench
