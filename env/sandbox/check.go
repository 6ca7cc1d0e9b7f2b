package sandbox

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// Sizes that a command may have, for every driver.
const (
	// MaxArgs bounds the arguments of a command together, in bytes, and MaxEnv its environment.
	MaxArgs = 128 << 10
	MaxEnv  = 128 << 10
	// MaxStdin bounds what a command reads: it lies in the box's memory while it does.
	MaxStdin = 64 << 20
	// MaxPath bounds a path, as the host's kernel does.
	MaxPath = 4095
)

// Check says what is wrong with an ID, as a Failure of class Refused.
func (id ID) Check(op string) error {
	refuse := func(why string) error {
		return Fail(Refused, op, "", "the box's name %.80q %s; it has letters, digits, '-' and '.', at most 64 of them, and begins with a letter: owner.number", string(id), why)
	}
	switch {
	case id == "":
		return refuse("is empty")
	case len(id) > 64:
		return refuse(fmt.Sprintf("is %d bytes long", len(id)))
	case !letter(id[0]):
		return refuse("does not begin with a letter")
	case strings.Contains(string(id), "..") || strings.HasSuffix(string(id), "."):
		return refuse("has nothing after a '.'")
	}
	for _, c := range []byte(id) {
		if !letter(c) && (c < '0' || c > '9') && c != '-' && c != '.' {
			return refuse(fmt.Sprintf("has a %q", c))
		}
	}
	return nil
}

func letter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

// OwnedBy reports whether the box is the owner's: its name begins with the owner's and a '.'.
func (id ID) OwnedBy(owner string) bool { return strings.HasPrefix(string(id), owner+".") }

// Check says what is wrong with a command, as a Failure of class Refused.
func (c Command) Check(id ID) error {
	refuse := func(format string, args ...any) error { return Fail(Refused, "run", id, format, args...) }
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		return refuse("a command needs a program: argv is empty")
	}
	size := 0
	for i, arg := range c.Argv {
		if at := strings.IndexByte(arg, 0); at >= 0 {
			return refuse("argument %d has a NUL at byte %d: no program can be given one; hand such bytes in through standard input or a file", i, at)
		}
		size += len(arg) + 1
	}
	if size > MaxArgs {
		return refuse("the arguments are %d bytes together, more than %d: hand long texts in through standard input or a file", size, MaxArgs)
	}
	if len(c.Stdin) > MaxStdin {
		return refuse("standard input is %d bytes, more than %d: write it to a file of the box", len(c.Stdin), MaxStdin)
	}
	if c.Time < 0 {
		return refuse("a time of %s is not one: 0 is the box's limit", c.Time)
	}
	if c.Dir != "" {
		if err := CheckPath("run", id, c.Dir); err != nil {
			return err
		}
	}
	return checkEnv("run", id, c.Env)
}

func checkEnv(op string, id ID, env map[string]string) error {
	size := 0
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			return Fail(Refused, op, id, "%.80q is no name of an environment variable: it is not empty and has neither '=' nor NUL", name)
		}
		if strings.IndexByte(env[name], 0) >= 0 {
			return Fail(Refused, op, id, "the environment variable %.80s has a NUL", name)
		}
		size += len(name) + len(env[name]) + 2
	}
	if size > MaxEnv {
		return Fail(Refused, op, id, "the environment is %d bytes, more than %d", size, MaxEnv)
	}
	return nil
}

// CheckPath says what is wrong with a path in a box, as a Failure of class Refused.
func CheckPath(op string, id ID, name string) error {
	switch {
	case !path.IsAbs(name):
		return Fail(Refused, op, id, "the path %.80q is not absolute: begin it with %s/ or another directory of the box", name, Work)
	case strings.IndexByte(name, 0) >= 0:
		return Fail(Refused, op, id, "the path %.80q has a NUL", name)
	case len(name) > MaxPath:
		return Fail(Refused, op, id, "the path is %d bytes long, more than %d", len(name), MaxPath)
	}
	return nil
}

// Check says what is wrong with a Spec, as a Failure of class Refused.
func (s Spec) Check(id ID) error {
	if s.Root != "" && !path.IsAbs(s.Root) {
		return Fail(Refused, "create", id, "the root %.80q is not absolute", s.Root)
	}
	for _, m := range s.Mounts {
		if !path.IsAbs(m.Host) || path.Clean(m.Host) != m.Host || strings.IndexByte(m.Host, 0) >= 0 {
			return Fail(Refused, "create", id, "the mount's host directory %.80q is not absolute and clean", m.Host)
		}
		if err := CheckPath("create", id, m.Box); err != nil {
			return err
		}
		clean := path.Clean(m.Box)
		if clean != m.Box || slices.Contains([]string{"/", Work, "/tmp", "/proc", "/dev", "/sys"}, clean) || strings.HasPrefix(clean, "/proc/") {
			return Fail(Refused, "create", id, "a mount cannot be at %.80q in the box: name a clean path that is not the box's own", m.Box)
		}
	}
	if err := checkEnv("create", id, s.Env); err != nil {
		return err
	}
	return s.Limits.check(id)
}

func (l Limits) check(id ID) error {
	for _, n := range []struct {
		name  string
		value float64
	}{
		{"memory", float64(l.Memory)}, {"cpus", l.CPUs}, {"processes", float64(l.Processes)}, {"disk", float64(l.Disk)},
		{"files", float64(l.Files)}, {"output", float64(l.Output)}, {"time", float64(l.Time)},
	} {
		if !(n.value >= 0) {
			return Fail(Refused, "create", id, "a limit of %s of %v is not one: 0 is the default", n.name, n.value)
		}
	}
	return nil
}
