// Package openapi is the contract of the HTTP API as Go types and a chi interface, generated from the
// openapi.yaml at the root of the repository, and the document itself.
//
// It settles which operations, parameters and members there are. It refuses to say what they mean: that
// is httpapi's.
package openapi

import _ "embed"

//go:generate go tool -modfile=../../../../tools/oapi-codegen.mod oapi-codegen -config oapi-codegen.yaml ../../../../openapi.yaml
//go:generate cp ../../../../openapi.yaml openapi.yaml

// YAML is the contract as it is served.
//
//go:embed openapi.yaml
var YAML []byte
