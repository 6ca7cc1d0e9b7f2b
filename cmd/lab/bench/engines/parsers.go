package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

// parsersName is the word of -only for the parsers, which are no engine.
const parsersName = "parsers"

// parserPackages judge how calls of tools are told from tokens.
var parserPackages = packages{name: "parsers", requirements: []string{"cmd/lab/bench/engines/requirements/calls.txt"},
	imports: "renderers, openai_harmony, vllm", over: &vllmPackages}

// parsers asks the parsers of others about generated responses, and prints which judged how many.
func (h *harness) parsers(ctx context.Context) error {
	python, err := h.installed(ctx, parserPackages)
	if err != nil || h.install {
		return err
	}
	h.logf("the parsers of others judge api/calls")
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-v", "-run=Oracles", "./api/calls")
	cmd.Env = append(os.Environ(), "HEADWAY_CALLS_PYTHON="+python)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("api/calls: %w", err)
	}
	return ctx.Err()
}
