// Package examples holds the programs and tasks that headway init copies into a new directory. Tests run the same files.
package examples

import "embed"

// Files are the examples that headway init writes, by their path below this folder.
//
//go:embed torch_grpo/train.py jax_grpo/train.py hf_grpo/train.py distill/train.py environments/words.py environments/sums.py environments/words_agent.py environments/sums_agent.py environments/words.jsonl environments/sums.jsonl
var Files embed.FS
