package command

import (
	"runtime"
	"runtime/debug"
)

// Build describes the running binary, from what the Go toolchain recorded.
type Build struct {
	// Version is the module's version, "(devel)" when built from a checkout
	// without one.
	Version string `json:"version"`
	// Revision is the commit it was built from, "" when unknown.
	Revision string `json:"revision"`
	// Modified says that the checkout had uncommitted changes.
	Modified bool `json:"modified"`
	// Go is the toolchain's version.
	Go string `json:"go"`
	// Platform is the operating system and processor, as GOOS/GOARCH.
	Platform string `json:"platform"`
}

// CurrentBuild reads the running binary's own description.
func CurrentBuild() Build {
	current := Build{Version: "(unknown)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return current
	}
	if info.Main.Version != "" {
		current.Version = info.Main.Version
	}
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			current.Revision = setting.Value
		case "vcs.modified":
			current.Modified = setting.Value == "true"
		}
	}
	return current
}
