// Package protocols holds the words of the dialects against released engines: make test-protocols.
//
// The dialects of vLLM and SGLang speak to a server that writes down their requests. The program
// read.py reads the routes of a release out of its wheel, and runs nothing of it. A request fails the
// test where the release lacks its route, a field of it or a parameter. So does a required field that
// the request lacks, and a value of another kind.
//
// Several things it cannot see:
//   - Validators may refuse more. Fields inside fields (sampling_params) and elements of lists are not read.
//   - A handler that reads a body by itself may read more names than those in its own lines.
//   - Answers are not compared. Options may leave a route out.
//   - Updates of adapters (LoRA) are not asked.
//   - Of examples/hf_shim the routes and the names of fields are compared: not their kinds, and not those
//     of /generate. The words of Tinker's service are not compared yet.
package protocols
