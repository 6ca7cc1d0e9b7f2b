package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/headway-rl/headway/config"
)

const deployDir = "../../deploy/"

// deployed is a command line of a file below deploy/.
type deployed struct {
	file      string
	arguments []string
}

// manifest is what this test looks at of a Kubernetes document.
type manifest struct {
	Kind     string            `yaml:"kind"`
	Metadata map[string]any    `yaml:"metadata"`
	Data     map[string]string `yaml:"data"`
	Spec     any               `yaml:"spec"`
}

func manifests(t *testing.T) map[string][]manifest {
	t.Helper()
	paths, err := filepath.Glob(deployDir + "kubernetes/*.yaml")
	if err != nil || len(paths) < 5 {
		t.Fatalf("%d manifests, %v", len(paths), err)
	}
	out := map[string][]manifest{}
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		documents := yaml.NewDecoder(file)
		for {
			var m manifest
			if err := documents.Decode(&m); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			if m.Kind == "" {
				t.Errorf("%s: a document without a kind", path)
			}
			out[filepath.Base(path)] = append(out[filepath.Base(path)], m)
		}
	}
	return out
}

// containersOf finds every container below a value.
func containersOf(value any, visit func(container map[string]any)) {
	switch v := value.(type) {
	case map[string]any:
		if v["image"] != nil {
			visit(v)
		}
		for _, inner := range v {
			containersOf(inner, visit)
		}
	case []any:
		for _, inner := range v {
			containersOf(inner, visit)
		}
	}
}

func words(list any) (out []string) {
	items, _ := list.([]any)
	for _, item := range items {
		out = append(out, item.(string))
	}
	return out
}

// commandLine finds the program's command lines in a script or a unit, variables in it
// as they stand.
var commandLine = regexp.MustCompile(`(?m)(?:^|[\s=])(?:/usr/local/bin/|/)?headway +((?:serve|status|weights|config)\b[^\n>&;|]*)`)

func deployedLines(t *testing.T) (lines []deployed) {
	t.Helper()
	for _, name := range []string{"headway.service", "slurm/headway.sbatch", "slurm/headway-pyxis.sbatch"} {
		text, err := os.ReadFile(deployDir + name)
		if err != nil {
			t.Fatal(err)
		}
		joined := strings.ReplaceAll(string(text), "\\\n", " ")
		joined = regexp.MustCompile(`(?m)^\s*#.*$`).ReplaceAllString(joined, "")
		for _, found := range commandLine.FindAllStringSubmatch(joined, -1) {
			line := regexp.MustCompile(`\$\{?\w+\}?`).ReplaceAllStringFunc(found[1], func(v string) string {
				if strings.Trim(v, "${}") == "port" {
					return "7070"
				}
				return "x"
			})
			lines = append(lines, deployed{name, strings.Fields(strings.ReplaceAll(line, `"`, ""))})
		}
	}
	text, err := os.ReadFile(deployDir + "Containerfile")
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile(`(?m)^CMD (\[.*\])$`).FindStringSubmatch(string(text))
	var arguments []string
	if command == nil || yaml.Unmarshal([]byte(command[1]), &arguments) != nil {
		t.Fatal("the Containerfile has no CMD")
	}
	lines = append(lines, deployed{"Containerfile", arguments})
	for file, documents := range manifests(t) {
		for _, m := range documents {
			containersOf(m.Spec, func(c map[string]any) {
				if strings.HasPrefix(c["image"].(string), "headway:") {
					lines = append(lines, deployed{file, words(c["args"])})
				}
			})
		}
	}
	return lines
}

// Every command line of the deployment files parses, and those that serve have a document
// that is one, an address, tokens and a place of their own.
func TestDeployedCommandLines(t *testing.T) {
	lines, serving := deployedLines(t), map[string]bool{}
	for _, line := range lines {
		var root commands
		parser, err := cli.Parser(&root, io.Discard, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		selected, err := parser.Parse(line.arguments)
		if err != nil {
			t.Errorf("%s: headway %s: %v", line.file, strings.Join(line.arguments, " "), err)
			continue
		}
		if selected.Command() != "serve" && selected.Command() != "serve <file>" {
			continue
		}
		serving[line.file] = true
		c := root.Serve
		if c.File == "/etc/headway/headway.yaml" {
			c.File = deployDir + "headway.yaml"
		}
		cfg, err := c.document()
		if err != nil {
			t.Errorf("%s: %v", line.file, err)
			continue
		}
		if cfg.Server.Listen != ":7070" || cfg.Server.TokenFile == "" || cfg.Store.Dir == "" || !filepath.IsAbs(cfg.Store.Dir) && cfg.Store.Dir != "x" {
			t.Errorf("%s: listens on %q with tokens %q in %q", line.file, cfg.Server.Listen, cfg.Server.TokenFile, cfg.Store.Dir)
		}
		if err := checkExposure(cfg); err != nil {
			t.Errorf("%s: %v", line.file, err)
		}
	}
	for _, file := range []string{"headway.service", "slurm/headway.sbatch", "slurm/headway-pyxis.sbatch", "Containerfile", "control-plane.yaml"} {
		if !serving[file] {
			t.Errorf("%s serves nothing: does this test look at it?", file)
		}
	}
}

// Every document below deploy/ has present keys alone: the files of its top folder, and what manifests
// of Kubernetes, several in a file, have in them.
func TestDeployedDocumentsParse(t *testing.T) {
	texts := map[string]string{}
	paths, err := filepath.Glob(deployDir + "*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts[filepath.Base(path)] = string(text)
	}
	for file, documents := range manifests(t) {
		for _, m := range documents {
			for key, text := range m.Data {
				if filepath.Ext(key) == ".yaml" {
					texts[file+": "+key] = text
				}
			}
		}
	}
	for name, text := range texts {
		if c, err := config.Parse(name, []byte(text)); err != nil {
			t.Error(err)
		} else if _, err := c.Resolve(); err != nil {
			t.Error(err)
		}
	}
	if len(texts) < 2 {
		t.Errorf("only %d documents were found", len(texts))
	}
}

// The documents inside the manifests are documents, and agree with what stands around them.
func TestDeployedDocuments(t *testing.T) {
	all := manifests(t)
	found := false
	for _, m := range all["control-plane.yaml"] {
		if m.Kind != "ConfigMap" {
			continue
		}
		found = true
		path := filepath.Join(t.TempDir(), "headway.yaml")
		if err := os.WriteFile(path, []byte(m.Data["headway.yaml"]), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := config.LoadWith(path)
		if err != nil {
			t.Fatal(err)
		}
		if cfg.Store.NATS.URL != "nats://headway-nats:4222" || cfg.Store.NATS.Replicas != 3 || cfg.Trainer.Kind != "remote" || cfg.Environment.Kind != "remote" {
			t.Errorf("it serves %+v", cfg.Store.NATS)
		}
		if room := int64(cfg.Store.NATS.LogBytesMax + cfg.Store.NATS.PayloadBytesMax); room > 40e9 {
			t.Errorf("log and payloads may take %d bytes, NATS' max_file_store is 40 GB", room)
		}
		if grace := 90.0; cfg.Server.DrainS >= grace {
			t.Errorf("a drain of %g s does not fit into terminationGracePeriodSeconds", cfg.Server.DrainS)
		}
	}
	if !found {
		t.Error("no document in control-plane.yaml")
	}
	var kinds []string
	for _, documents := range all {
		for _, m := range documents {
			kinds = append(kinds, m.Kind)
		}
	}
	for _, kind := range []string{"Deployment", "StatefulSet", "Service", "PersistentVolumeClaim", "NetworkPolicy", "ConfigMap", "PodDisruptionBudget", "Kustomization"} {
		if !slices.Contains(kinds, kind) {
			t.Errorf("no %s", kind)
		}
	}
}

// The standby is never ready: what waits for a second ready Pod would wait for ever.
func TestDeployedStandbyIsNotAwaited(t *testing.T) {
	deployments := 0
	for _, m := range manifests(t)["control-plane.yaml"] {
		switch m.Kind {
		case "PodDisruptionBudget":
			t.Error("a budget that keeps a Pod ready never lets the writer's node be drained")
		case "Deployment":
			deployments++
			spec, _ := m.Spec.(map[string]any)
			strategy, _ := spec["strategy"].(map[string]any)
			if spec["replicas"] != uint64(2) || strategy["type"] != "Recreate" {
				t.Errorf("%v replicas by strategy %v, want 2 by Recreate", spec["replicas"], strategy)
			}
		}
	}
	if deployments != 1 {
		t.Errorf("%d deployments", deployments)
	}
}

// Cells are of the control plane's run: they have its name, its directory and its NATS. Claims name the address that a pod
// keeps when it is started again.
func TestDeployedCells(t *testing.T) {
	all, lines := manifests(t), map[string]deployed{}
	for _, line := range deployedLines(t) {
		lines[line.file] = line
	}
	parse := func(file string) (root commands) {
		parser, err := cli.Parser(&root, io.Discard, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parser.Parse(lines[file].arguments); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		return root
	}
	served, c := parse("control-plane.yaml").Serve, parse("cells.yaml").Cell
	if c.Cell != "$(POD)" || c.File != served.File || c.Name != served.Name || c.Dir != served.Dir || c.TokenFile != served.TokenFile {
		t.Errorf("a cell is started by %v, and the control plane by %v", lines["cells.yaml"].arguments, lines["control-plane.yaml"].arguments)
	}
	services := map[string]map[string]any{}
	for _, m := range all["cells.yaml"] {
		spec, _ := m.Spec.(map[string]any)
		switch m.Kind {
		case "Service":
			services[m.Metadata["name"].(string)] = spec
		case "StatefulSet":
			service := spec["serviceName"].(string)
			if c.URL != "http://$(POD)."+service+":7070" || services[service]["clusterIP"] != "None" || services[service]["publishNotReadyAddresses"] != true {
				t.Errorf("claims name %s, and the pods are those of the service %s: %v", c.URL, service, services[service])
			}
		}
	}
	text, err := os.ReadFile(deployDir + "kubernetes/network.yaml")
	if err != nil || !strings.Contains(string(text), "{app: headway-cells}") {
		t.Errorf("NATS does not hear cells: %v", err)
	}
}

// documentLine is a line of a document that a manifest's comment has for the ConfigMap of control-plane.yaml.
var documentLine = regexp.MustCompile(`(?m)^#   ((?:model|engines|fleet):.*|  - .*)$`)

// What comments add to the document of the control plane makes a document.
func TestDeployedComments(t *testing.T) {
	all := manifests(t)
	for _, file := range []string{"fleet.yaml", "fleet-cells.yaml", "cells.yaml"} {
		text, err := os.ReadFile(deployDir + "kubernetes/" + file)
		if err != nil {
			t.Fatal(err)
		}
		document := ""
		for _, line := range documentLine.FindAllSubmatch(text, -1) {
			document += string(line[1]) + "\n"
		}
		for _, m := range all["control-plane.yaml"] {
			if m.Kind == "ConfigMap" {
				document = m.Data["headway.yaml"] + document
			}
		}
		path := filepath.Join(t.TempDir(), "headway.yaml")
		if err := os.WriteFile(path, []byte(document), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := config.LoadWith(path)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if cells := len(cfg.Cells()); len(cfg.Engines) < 4 || (cells > 0) != (file != "fleet.yaml") || !strings.HasPrefix(cfg.Model.Path, "/runs/") {
			t.Errorf("%s: %d engines of %d cells with the model %s", file, len(cfg.Engines), cells, cfg.Model.Path)
		}
	}
}

// The default port is the one that every file names.
func TestDeployedPorts(t *testing.T) {
	cfg, err := config.LoadWith("")
	if err != nil {
		t.Fatal(err)
	}
	port := cfg.Server.Listen[strings.LastIndex(cfg.Server.Listen, ":")+1:]
	for file, want := range map[string]string{"Containerfile": "EXPOSE " + port, "kubernetes/control-plane.yaml": "containerPort: " + port,
		"kubernetes/network.yaml": "port: " + port, "kubernetes/workers.yaml": "http://headway:" + port, "slurm/headway.sbatch": "HEADWAY_PORT:-" + port,
		"slurm/headway-pyxis.sbatch": "HEADWAY_PORT:-" + port, "headway.service": ":" + port} {
		text, err := os.ReadFile(deployDir + file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %q", file, want)
		}
	}
}
