// Package internal has no code of its own: its test keeps the packages below it in shape.
package internal
