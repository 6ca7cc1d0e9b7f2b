package file

// DecodeSample is decodeSample for the fuzzer.
var DecodeSample = decodeSample
