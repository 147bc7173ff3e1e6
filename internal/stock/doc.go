// Package stock is the vocabulary of Holdfast: items and quantities, deductions and their states,
// movements, what a caller may ask for, and every outcome that is expected to happen, as an error.
//
// It settles what a value may be (a SKU's bytes, a quantity's range, which action a state allows) and
// refuses anything else, so that no other package has to ask again. It does no I/O and knows neither
// Postgres, Redis nor HTTP.
package stock
