package code

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/headway-rl/headway/env/sandbox"
)

//go:embed harness.go.txt
var goHarness string

// Where a box has Go: the toolchain, and the compiled packages that programs import.
const (
	boxGo       = "/opt/go"
	boxPackages = "/opt/go-packages"
)

// goImports are the packages that programs and their harness import.
var goImports = []string{"io", "os", "slices", "strconv", "strings", "runtime"}

// importConfig is the file in boxPackages that names its archives to compiler and linker.
const importConfig = "importcfg"

// PrepareGo makes all that boxes need for programs in Go, from the host's toolchain, and returns the mounts for their
// [sandbox.Spec]. Those are the toolchain and a directory, made anew, with the compiled packages that programs import.
// So a program is compiled and linked and nothing else is built.
func PrepareGo(ctx context.Context, dir string) ([]sandbox.Mount, error) {
	root, err := goCommand(ctx, "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	list, err := goCommand(ctx, append([]string{"list", "-export", "-deps", "-f", "{{if .Export}}{{.ImportPath}} {{.Export}}{{end}}"}, goImports...)...)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("env/code: %w", err)
	}
	var config strings.Builder
	for i, line := range strings.Split(strings.TrimSpace(list), "\n") {
		path, file, _ := strings.Cut(line, " ")
		archive, err := os.ReadFile(file)
		name := strconv.Itoa(i) + ".a"
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), archive, 0o644)
		}
		if err != nil {
			return nil, fmt.Errorf("env/code: the compiled package %s: %w", path, err)
		}
		fmt.Fprintf(&config, "packagefile %s=%s/%s\n", path, boxPackages, name)
	}
	if err := os.WriteFile(filepath.Join(dir, importConfig), []byte(config.String()), 0o644); err != nil {
		return nil, fmt.Errorf("env/code: %w", err)
	}
	return []sandbox.Mount{{Host: strings.TrimSpace(root), Box: boxGo}, {Host: dir, Box: boxPackages}}, nil
}

// goCommand runs the host's go command.
func goCommand(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0", "GOTOOLCHAIN=local")
	cmd.Dir = os.TempDir() // of no module
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("env/code: programs in Go need the go command on this host: install Go, or set environment.language to python: %w", err)
	}
	if err != nil {
		return "", fmt.Errorf("env/code: go %s: %w: %.300s", args[0], err, stderr.String())
	}
	return string(out), nil
}

// build compiles and links the program in the box's directory. Exit code 1 is the program's fault.
const build = `set -e
tools=$(echo ` + boxGo + `/pkg/tool/*_*)
$tools/compile -p main -complete -importcfg ` + boxPackages + `/` + importConfig + ` -o main.a harness.go program.go || exit 1
$tools/link -s -w -buildmode=exe -importcfg ` + boxPackages + `/` + importConfig + ` -o program main.a || exit 2
rm main.a`

// runGo runs programs one after the other, each compiled by itself.
func (j *Scorer) runGo(ctx context.Context, box sandbox.Box, programs []source) ([]outcome, error) {
	outcomes := make([]outcome, 0, len(programs))
	for _, p := range programs {
		o, err := j.runOneGo(ctx, box, p)
		if err != nil {
			return nil, err
		}
		outcomes = append(outcomes, o)
	}
	return outcomes, nil
}

func (j *Scorer) runOneGo(ctx context.Context, box sandbox.Box, p source) (outcome, error) {
	for name, text := range map[string]string{"harness.go": goHarness, "program.go": p.text} {
		if err := box.Write(ctx, sandbox.Work+"/"+name, []byte(text), 0o644); err != nil {
			return outcome{}, err
		}
	}
	built, err := box.Run(ctx, sandbox.Command{Argv: []string{"sh", "-c", build}})
	switch {
	case err != nil:
		return outcome{}, err
	case built.Exit == 1 && built.Limit == "":
		return outcome{what: "does not compile"}, nil
	case built.Exit != 0:
		return outcome{}, sandbox.Fail(sandbox.VerifierCrash, "verify", box.ID(), "building a program ended with exit code %d, limit %q: %.300q; it needs the mounts of PrepareGo", built.Exit, built.Limit, built.Stderr)
	}
	var stdin strings.Builder
	for _, x := range p.inputs {
		for _, v := range x {
			stdin.WriteString(strconv.FormatInt(v, 10) + " ")
		}
		stdin.WriteString("\n")
	}
	ran, err := box.Run(ctx, sandbox.Command{Argv: []string{"./program"}, Stdin: []byte(stdin.String()), Time: max(wallFactor*j.cpu, wallLeast)})
	if err != nil {
		return outcome{}, err
	}
	return goOutcome(box.ID(), ran, len(p.inputs))
}

// goOutcome is what a program did that was started.
func goOutcome(id sandbox.ID, ran sandbox.Result, tests int) (outcome, error) {
	o := parseRuns(ran.Stdout, ran.Limit)
	switch {
	case ran.Exit == 2 && bytes.Contains(ran.Stderr, []byte("out of memory")) && o.limit == "":
		o.limit = sandbox.OutOfMemory
	case ran.Exit != 0 && o.limit == "" && len(o.runs) == 0 && tests > 0:
		return outcome{}, sandbox.Fail(sandbox.VerifierCrash, "verify", id, "a program ended with exit code %d before its first test: %.300q", ran.Exit, ran.Stderr)
	case ran.Exit != 0 && o.limit == "":
		o.what = fmt.Sprintf("exit code %d", ran.Exit)
	}
	return o, nil
}
