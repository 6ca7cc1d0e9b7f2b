// Package protocols holds our words against released engines: make test-protocols.
//
// The dialects of vLLM and SGLang speak to a server that writes down their requests. The program
// read.py reads the routes of a release out of its wheel, and runs nothing of it. A request fails the
// test where the release lacks its route, a field of it or a parameter. So does a required field that
// the request lacks, and a value of another kind. Fields inside fields count too.
//
// Tinker releases a client and no server. The program sdk.py reads the requests of that client.
// Those of internal/tinker are held against them, with its defaults.
//
// A name that our decoders read in an answer must be a word of the release's sources.
// Of examples/hf_shim the routes, names of fields and defaults are compared.
//
// Several things it cannot see:
//   - Validators may refuse more.
//   - A handler that reads a body by itself may read more names than those in its own lines.
//   - A name in an answer is looked for anywhere in the release, not in the answer of that route.
//   - Options may leave a route out.
//   - Of the shim the kinds of fields are not compared, nor the fields of /generate.
//   - A pass over data in protobuf is compared by internal/tinker/testdata/golden.json.
package protocols
