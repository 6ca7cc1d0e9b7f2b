package parts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/sandbox/pool"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/observe/report"
)

// sandboxesFile is where a run writes down which sandboxes are open.
const sandboxesFile = "sandboxes.jsonl"

// PoolCloseLimit is how long a process that ends waits for its sandboxes to be gone.
const PoolCloseLimit = 20 * time.Second

// SpecOf is what every sandbox of a document is made of.
func SpecOf(s config.Sandbox) sandbox.Spec {
	spec := sandbox.Spec{Root: s.Root, Image: s.Image, Network: s.Network, Limits: sandbox.Limits{
		Memory: int64(s.MemoryMB) << 20, CPUs: s.CPUs, Processes: s.Processes, Disk: int64(s.DiskMB) << 20, Files: s.Files,
		Output: int64(s.OutputKB) << 10, Time: config.Seconds(s.TimeoutS),
	}}
	for _, m := range s.Mounts {
		spec.Mounts = append(spec.Mounts, sandbox.Mount{Host: filepath.Clean(m.Host), Box: filepath.Clean(m.Box)})
	}
	for _, entry := range s.Env {
		if spec.Env == nil {
			spec.Env = map[string]string{}
		}
		name, value, _ := strings.Cut(entry, "=")
		spec.Env[name] = value
	}
	return spec
}

// poolOptions are the document's, for a run in a directory.
func poolOptions(cfg config.Config, driver sandbox.Driver, dir string, logf func(string, ...any)) pool.Options {
	s := cfg.Sandbox
	retries := s.Retries
	if retries == 0 {
		retries = -1 // the document says none
	}
	most := s.Max
	if most == 0 && s.Driver == "swerex" {
		most = len(s.URLs) * max(s.ServerBoxes, 1)
	}
	return pool.Options{
		Driver: driver, Spec: SpecOf(s), Owner: SandboxOwner(cfg, dir), Earlier: ownerNamed(cfg, dir, filepath.Base(dir)), File: filepath.Join(dir, sandboxesFile),
		Max: most, Starting: s.Starting, WarmMin: s.WarmMin, WarmMax: s.WarmMax, Reuse: pool.Reuse(s.Reuse), Uses: s.Uses,
		StartTimeout: config.Seconds(s.StartTimeoutS), Retries: retries, BreakAfter: s.BreakAfter, BreakFor: config.Seconds(s.BreakForS), Logf: logf,
	}
}

// SandboxOwner names a run among all that may have sandboxes in one place. The name is of its directory and host, or
// of the cluster that has its log, so that a standby elsewhere has the same.
func SandboxOwner(cfg config.Config, dir string) string {
	name := filepath.Base(dir)
	if above := filepath.Dir(dir); filepath.Base(above) == cellsDir { // cells of other runs have the same names
		name = filepath.Base(filepath.Dir(above)) + "/" + name
	}
	return ownerNamed(cfg, dir, name)
}

// ownerNamed is the owner of a directory, which is called so among those of its cluster.
func ownerNamed(cfg config.Config, dir, name string) string {
	place := cfg.Public().Store.NATS.URL + "\n" + name
	if cfg.Store.NATS.Inside() {
		host, _ := os.Hostname()
		whole, err := filepath.Abs(dir)
		place = host + "\n" + whole
		if err != nil {
			place = host + "\n" + dir
		}
	}
	sum := sha256.Sum256([]byte(place))
	return "headway-" + hex.EncodeToString(sum[:6])
}

// OpenPool removes what an earlier process of the run has left behind, says so, and makes the pool. A
// command in its boxes may take as long as the longest, where that is more than sandbox.timeout_s.
func OpenPool(ctx context.Context, cfg config.Config, dir string, longest time.Duration, logf func(string, ...any)) (*pool.Pool, error) {
	driver, boundary, err := UsableDriver(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if said := partial(boundary); said != "" {
		logf("sandbox.driver %s: %s", cfg.Sandbox.Driver, said)
	}
	options := poolOptions(cfg, driver, dir, logf)
	options.Spec.Limits.Time = max(options.Spec.Limits.Time, longest)
	p, err := pool.Open(ctx, options)
	if err != nil {
		return nil, failure.Run("headway doctor says what is missing, and how to get it", "%w", err)
	}
	sayOrphans(p.Lost(), logf)
	return p, nil
}

// orphansShown is how many orphans are named one by one.
const orphansShown = 4

// sayOrphans tells the operator what an earlier process has left behind.
func sayOrphans(lost []pool.Orphan, logf func(string, ...any)) {
	var held []string
	for _, o := range lost {
		if o.Holder != "" {
			held = append(held, o.Holder)
		}
	}
	if len(lost) == 0 {
		return
	}
	text := fmt.Sprintf("removed %s of an earlier process", report.Counted(len(lost), "sandbox"))
	if len(lost) > 1 {
		text = fmt.Sprintf("removed %d sandboxes of an earlier process", len(lost))
	}
	if len(held) > 0 {
		shown := held[:min(len(held), orphansShown)]
		text += "; these attempts had one and are played again: " + strings.Join(shown, ", ")
		if more := len(held) - len(shown); more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
	}
	logf("%s", text)
}
