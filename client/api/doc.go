// Package api is the contract of Holdfast's HTTP API as Go types and request builders, generated from openapi.yaml.
//
// It settles what is sent and what comes back. It refuses to send again or to judge an answer: package client does.
package api

//go:generate go tool -modfile=../../tools/oapi-codegen.mod oapi-codegen -config oapi-codegen.yaml ../../openapi.yaml
