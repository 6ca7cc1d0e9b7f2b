package plan

import _ "embed"

// Example is the document that headway plan takes without a FILE.
//
//go:embed example.yaml
var Example []byte
