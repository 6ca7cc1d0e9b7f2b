// Package calibrate opens the engine that headway calibrate measures: a server by its address, or an engine of a document. It
// says what of a measurement the engine can hold, and reads prompts by the engine's own tokenizer.
package calibrate
