package command

import (
	"runtime"
	"runtime/debug"
)

// The linker sets these where a wheel is built (clients/python/hatch_build.py).
var version, revision, modified, origin string

// Build describes the running binary, from what the linker and the Go toolchain recorded.
type Build struct {
	// Version is the wheel's or the module's version, "(devel)" when built from
	// a checkout without one.
	Version string `json:"version"`
	// Revision is the commit it was built from, "" when unknown.
	Revision string `json:"revision"`
	// Modified says that the checkout had uncommitted changes.
	Modified bool `json:"modified"`
	// Origin says where the binary came from: "wheel" for a Python package,
	// "module" for `go install` of a version, else "checkout".
	Origin string `json:"origin"`
	// Go is the toolchain's version.
	Go string `json:"go"`
	// Platform is the operating system and processor, as GOOS/GOARCH.
	Platform string `json:"platform"`
}

// CurrentBuild reads the running binary's own description.
func CurrentBuild() Build {
	current := Build{Version: "(unknown)", Origin: "checkout", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return current
	}
	if info.Main.Version != "" {
		current.Version = info.Main.Version
	}
	if info.Main.Sum != "" {
		current.Origin = "module"
	}
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			current.Revision = setting.Value
		case "vcs.modified":
			current.Modified = setting.Value == "true"
		}
	}
	if origin != "" {
		current.Version, current.Revision, current.Modified, current.Origin = version, revision, modified == "true", origin
	}
	return current
}
