package config

import (
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
)

// driverKeys are the keys of sandbox that only some drivers use.
var driverKeys = []struct {
	key     string
	drivers []string
	said    func(Sandbox) bool
}{
	{"boundary", []string{"process", "swerex", "kubernetes"}, func(s Sandbox) bool { return s.Boundary != "" }},
	{"root", []string{"bwrap", "runsc"}, func(s Sandbox) bool { return s.Root != "" }},
	{"mounts", []string{"bwrap", "runsc"}, func(s Sandbox) bool { return len(s.Mounts) > 0 }},
	{"image", []string{"kubernetes", "e2b"}, func(s Sandbox) bool { return s.Image != "" }},
	{"urls", []string{"swerex"}, func(s Sandbox) bool { return len(s.URLs) > 0 }},
	{"server_boxes", []string{"swerex"}, func(s Sandbox) bool { return s.ServerBoxes > 0 }},
	{"isolated", []string{"swerex", "kubernetes"}, func(s Sandbox) bool { return s.Isolated }},
	{"url", []string{"e2b"}, func(s Sandbox) bool { return s.URL != "" }},
	{"key_file", []string{"swerex", "e2b"}, func(s Sandbox) bool { return s.KeyFile != "" }},
	{"kubernetes", []string{"kubernetes"}, func(s Sandbox) bool { return s.Kubernetes != Kubernetes{} }},
	{"e2b", []string{"e2b"}, func(s Sandbox) bool { return s.E2B != E2B{} }},
}

// verifierKeys are the keys that each kind of verifier uses beside kind.
var verifierKeys = func() map[string][]string {
	common := []string{"range", "concurrency", "timeout_s", "retries"}
	own := map[string][]string{
		"exact":    {"extract", "marker", "pattern", "ignore_case", "ignore_space", "text", "tolerance"},
		"starlark": {"expression", "file"}, "command": {"command"}, "http": {"url", "key_file"}, "tests": {"test", "source", "reward_key"},
	}
	for kind, keys := range own {
		own[kind] = append(keys, common...)
	}
	own["none"] = nil
	return own
}()

// environments checks how rollouts are played inside the control plane, and what in.
func (v *validator) environments() {
	e := v.config.Environment
	if e.Played() {
		v.played()
	} else {
		v.notPlayed()
	}
	v.programs()
	if v.config.says(v.config.Sandbox, "sandbox") {
		v.sandboxes()
	}
}

// played checks kinds tasks and openenv.
func (v *validator) played() {
	e := v.config.Environment
	const prefix = "environment."
	if e.Kind == "tasks" {
		if e.Tasks.File == "" {
			v.fail(prefix+"tasks.file", nil, "is missing: kind tasks plays the prompts of a file", "the path of a JSON lines or Parquet file, or of a directory of Harbor tasks")
		}
		if e.Tasks.HeldOut > 0 && e.Tasks.HeldOutFile != "" {
			v.fail(prefix+"tasks.held_out", e.Tasks.HeldOut, "says again what environment.tasks.held_out_file says", "one of the two")
		}
		v.idle(prefix+"tasks.settled_share", e.Tasks.SettledShare > 0 && e.Tasks.SettledAfter == 0, "without environment.tasks.settled_after", "settled_after of at least 1, or leave it out")
		v.idle(prefix+"openenv", e.OpenEnv != OpenEnv{}, "with environment.kind tasks", "kind openenv, or leave it out")
	} else {
		if problem := environmentURL(e.OpenEnv.URL); problem != "" {
			v.fail(prefix+"openenv.url", e.OpenEnv.URL, problem, "such as http://host:8000, where the server answers /ws")
		}
		v.idle(prefix+"tools", len(e.Tools) > 0, "with environment.kind openenv, whose server has the tools", "leave it out")
		v.idle(prefix+"on_limit", e.OnLimit != OnLimit{}, "with environment.kind openenv, which has no sandbox", "leave it out")
		v.idle(prefix+"tasks", e.Tasks.File == "" && e.Tasks != Tasks{}, "without environment.tasks.file", "environment.tasks.file, or leave it out")
	}
	for i, tool := range e.Tools {
		if slices.Contains(e.Tools[:i], tool) {
			v.fail(fmt.Sprintf("%stools.%d", prefix, i), tool, "is named twice", "each tool once")
		}
	}
	if len(e.Tools) > 0 && v.config.Gateway.ToolFormat == "none" {
		v.fail("gateway.tool_format", "none", "cannot write the calls of environment.tools", "auto, or the family that the model was trained as")
	}
	if e.Kind == "tasks" && !v.config.UsesSandbox() {
		v.idle(prefix+"on_limit", e.OnLimit != OnLimit{}, "where nothing runs in a sandbox", "environment.tools, verifier.kind tests, or leave it out")
	}
	v.verifier()
}

// programs checks what is said of the task code.
func (v *validator) programs() {
	e := v.config.Environment
	if e.Task != "code" {
		for _, said := range []struct {
			key  string
			said bool
		}{{"language", e.Language != ""}, {"operations_min", e.OperationsMin > 0}, {"operations_max", e.OperationsMax > 0}, {"tests", e.Tests > 0}, {"program_s", e.ProgramS > 0}} {
			v.idle("environment."+said.key, said.said, "with environment.task "+e.Task, "task code, or leave it out")
		}
		return
	}
	if e.OperationsMin > e.OperationsMax {
		v.fail("environment.operations_min", e.OperationsMin, fmt.Sprintf("is above environment.operations_max (%d)", e.OperationsMax), fmt.Sprintf("at most %d", e.OperationsMax))
	}
}

// notPlayed refuses what is said of rollouts that somebody else plays.
func (v *validator) notPlayed() {
	e := v.config.Environment
	for _, said := range []struct {
		key  string
		said bool
	}{
		{"tasks", e.Tasks != Tasks{}}, {"verifier", v.config.says(e.Verifier, "environment.verifier")}, {"tools", len(e.Tools) > 0}, {"openenv", e.OpenEnv != OpenEnv{}},
		{"turns_max", e.TurnsMax > 0}, {"players", e.Players > 0},
	} {
		v.idle("environment."+said.key, said.said, "with environment.kind "+e.Kind, "environment.kind tasks or openenv, or leave it out")
	}
	if !v.config.UsesSandbox() {
		v.idle("environment.timeout_s", e.TimeoutS > 0, "with environment.kind "+e.Kind, "environment.kind tasks or openenv, or leave it out")
		v.idle("environment.on_limit", e.OnLimit != OnLimit{}, "where nothing runs in a sandbox", "leave it out")
	}
}

// unrewarded refuses what chooses by the rewards of tasks where a teacher judges, and all rewards are 0.
func (v *validator) unrewarded() {
	c := v.config
	for _, said := range []struct {
		key  string
		said bool
		what string
	}{
		{"filter.zero_advantage", c.Filter.ZeroAdvantage, "filters every group"},
		{"filter.solve_rate.drop", c.Filter.SolveRate.Drop, "filters by rewards"},
		{"filter.curriculum.levels", c.Filter.Curriculum.Levels > 0, "chooses by rewards"},
		{"environment.tasks.settled_after", c.Environment.Tasks.SettledAfter > 0, "takes every task for one that is never solved"},
	} {
		if said.said {
			v.fail(said.key, nil, said.what+", and with environment.verifier.kind none each reward is 0", "a verifier, or leave it out")
		}
	}
}

// verifier checks who judges.
func (v *validator) verifier() {
	e := v.config.Environment
	const at = "environment.verifier"
	if v.unused(at, "kind", e.Verifier.Kind, verifierKeys) {
		return
	}
	switch kind := e.Verifier.Kind; {
	case kind == "none" && e.Kind == "tasks" && !v.config.Taught():
		v.fail(at+".kind", kind, "leaves the rollouts of tasks without a reward, and there is no teacher", "exact, starlark, command, http, tests; or scoring.servers with a teacher")
	case kind == "none" && e.Kind == "tasks":
		v.unrewarded()
	case kind == "tests" && e.Kind == "openenv":
		v.fail(at+".kind", kind, "runs in a sandbox, and environment.kind openenv has none", "none, where the server gives rewards, or another")
	case kind == "starlark" && (e.Verifier.Expression == "") == (e.Verifier.File == ""):
		v.fail(at+".expression", nil, "and environment.verifier.file are two ways to say one thing, and kind starlark needs one", "one of the two")
	case kind == "exact" && (e.Verifier.Extract == "marker") != (e.Verifier.Marker != ""):
		v.fail(at+".marker", e.Verifier.Marker, "and environment.verifier.extract do not say the same", "extract marker with a marker, or neither")
	case kind == "exact" && (e.Verifier.Extract == "pattern") != (e.Verifier.Pattern != ""):
		v.fail(at+".pattern", e.Verifier.Pattern, "and environment.verifier.extract do not say the same", "extract pattern with a pattern, or neither")
	case kind == "command" && len(e.Verifier.Command) == 0:
		v.fail(at+".command", nil, "is missing", "the program and its arguments, as a list")
	case kind == "http":
		if problem := environmentURL(e.Verifier.URL); problem != "" {
			v.fail(at+".url", e.Verifier.URL, problem, "such as http://host:9000/verify")
		}
	}
	v.idle(at+".reward_key", e.Verifier.RewardKey != "" && (e.Verifier.Source == "line" || e.Verifier.Source == "exit"), "with source "+e.Verifier.Source+", which reads no reward file", "source file, or leave it out")
	if r := e.Verifier.Range; e.Verifier.Kind != "none" && (len(r) != 2 || r[0] >= r[1]) {
		v.fail(at+".range", nil, "is no range of rewards", "the least and the greatest, such as [0, 1]")
	}
}

// sandboxes checks what a sandbox is and how many there are.
func (v *validator) sandboxes() {
	s := v.config.Sandbox
	if !v.config.UsesSandbox() {
		key, _ := v.config.givenUnder("sandbox")
		v.idle(key, true, "where nothing runs in a sandbox", "environment.tools with environment.kind tasks, environment.verifier.kind tests, or leave it out; modelled.sandbox is what simulations read")
		return
	}
	for _, k := range driverKeys {
		v.idle("sandbox."+k.key, k.said(s) && !slices.Contains(k.drivers, s.Driver), "with driver "+s.Driver, "driver "+strings.Join(k.drivers, " or ")+", or leave it out")
	}
	if s.Isolated && s.Boundary != "" {
		v.fail("sandbox.boundary", s.Boundary, "says the opposite of sandbox.isolated", "one of the two")
	}
	if s.Driver == "swerex" && len(s.URLs) == 0 {
		v.fail("sandbox.urls", nil, "is missing: driver swerex asks servers", "their addresses, such as [http://host:8000]")
	}
	for i, address := range s.URLs {
		if problem := CheckURL(address); problem != "" {
			v.fail(fmt.Sprintf("sandbox.urls.%d", i), address, problem, "such as http://host:8000, the server's address without a path")
		}
	}
	if s.URL != "" {
		if problem := CheckURL(s.URL); problem != "" {
			v.fail("sandbox.url", s.URL, problem, "such as http://host:8000, the server's address without a path")
		}
	}
	if s.Driver == "e2b" && s.KeyFile == "" {
		v.fail("sandbox.key_file", nil, "is missing: e2b asks for a key", "a file with the key")
	}
	v.idle("sandbox.uses", s.Uses > 0 && s.Reuse == "never", "with reuse never", "reuse reset, or leave it out")
	if s.WarmMin > s.WarmMax {
		v.fail("sandbox.warm_max", s.WarmMax, fmt.Sprintf("is below sandbox.warm_min (%d)", s.WarmMin), fmt.Sprintf("at least %d", s.WarmMin))
	}
	if s.Max > 0 && s.WarmMin > s.Max {
		v.fail("sandbox.warm_min", s.WarmMin, fmt.Sprintf("is above sandbox.max (%d)", s.Max), fmt.Sprintf("at most %d", s.Max))
	}
	v.sandboxPaths()
}

// sandboxPaths checks directories and variables.
func (v *validator) sandboxPaths() {
	s := v.config.Sandbox
	seen := map[string]bool{}
	for i, m := range s.Mounts {
		at := fmt.Sprintf("sandbox.mounts.%d.", i)
		if !path.IsAbs(m.Host) {
			v.fail(at+"host", m.Host, "is no absolute path", "such as /srv/data")
		}
		switch place := path.Clean(m.Box); {
		case !path.IsAbs(m.Box) && m.Box == m.Host: // said already
		case !path.IsAbs(m.Box):
			v.fail(at+"box", m.Box, "is no absolute path", "such as /data")
		case slices.Contains([]string{"/", "/work", "/tmp", "/proc", "/dev", "/sys"}, place):
			v.fail(at+"box", m.Box, "is a directory that every sandbox has for itself", "another, such as /data")
		case seen[place]:
			v.fail(at+"box", m.Box, "is where another mount is", "a place of its own")
		default:
			seen[place] = true
		}
	}
	names := map[string]bool{}
	for i, entry := range s.Env {
		name, _, ok := strings.Cut(entry, "=")
		at := fmt.Sprintf("sandbox.env.%d", i)
		switch {
		case !ok || name == "" || strings.ContainsAny(entry, "\x00"):
			v.fail(at, entry, "is no variable", "NAME=VALUE")
		case names[name]:
			v.fail(at, entry, "says again what another entry says", "each name once")
		}
		names[name] = true
	}
}

// environmentURL says what is wrong with an address that may have a path, empty for nothing.
func environmentURL(text string) string {
	u, err := url.Parse(text)
	switch {
	case text == "":
		return "is missing"
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return "is not the address of a server"
	case u.User != nil:
		return "holds a password: it would be in every copy of this document"
	}
	return ""
}

// environmentWarnings says what of a real environment is probably not meant.
func (c Config) environmentWarnings(warn func(key, format string, args ...any)) {
	e, s := c.Environment, c.Sandbox
	if c.UsesSandbox() {
		switch {
		case s.Driver == "process" && s.Boundary == "none":
			warn("sandbox.driver", "process is no boundary: code of the policy can do whatever this user can, to files, to processes and over the network; bwrap or runsc")
		case s.Driver == "process":
			warn("sandbox.driver", "process is no boundary, and a run is refused: bwrap or runsc, or sandbox.boundary none beside process")
		}
		if n := len(s.URLs) * max(s.ServerBoxes, 1); s.Driver == "swerex" && n < c.Rollout.Concurrency && s.Max == 0 {
			warn("sandbox.urls", "the servers have %d sandboxes at once, fewer than rollout.concurrency (%d): the others wait for one in their slots", n, c.Rollout.Concurrency)
		}
		if s.Max > 0 && s.Max < c.Rollout.Concurrency {
			warn("sandbox.max", "%d is below rollout.concurrency (%d): the others wait for a sandbox in their slots", s.Max, c.Rollout.Concurrency)
		}
	}
	if e.Played() && e.Players < c.Rollout.Concurrency {
		warn("environment.players", "%d is below rollout.concurrency (%d): that many rollouts hold a slot and nobody plays them", e.Players, c.Rollout.Concurrency)
	}
}
