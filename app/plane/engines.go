package plane

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/store/transfer"
	"github.com/headway-rl/headway/store/weights"
)

// stagedEngine is an engine that has stages on other nodes: it holds a version when they
// do, and serves it when they do.
type stagedEngine struct {
	port.Engine
	plane *Plane
}

func (p *Plane) staged(e port.Engine) port.Engine { return stagedEngine{e, p} }

// Inner implements port.Wrapper.
func (s stagedEngine) Inner() any { return s.Engine }

// Load implements port.Engine: prefetch everywhere, before anything is paused.
func (s stagedEngine) Load(ctx context.Context, version loop.Version) error {
	if err := s.plane.offer(ctx, s.Name(), version); err != nil {
		return err
	}
	loaded := s.Engine.Load(ctx, version)
	err := s.plane.receivers.Load(ctx, s.Name(), version)
	for errors.Is(err, transfer.ErrNotOffered) && ctx.Err() == nil { // one came since
		if err = s.plane.offer(ctx, s.Name(), version); err == nil {
			err = s.plane.receivers.Load(ctx, s.Name(), version)
		}
	}
	return errors.Join(loaded, err)
}

// Switch implements port.Engine. One that fails may be of a server that is gone.
func (s stagedEngine) Switch(ctx context.Context, version loop.Version, hold bool) error {
	if err := s.plane.receivers.Switch(ctx, s.Name(), version); err != nil {
		return err
	}
	err := s.Engine.Switch(ctx, version, hold)
	if err != nil {
		s.plane.suspect()
	}
	return err
}

// stagesOf says how many stages of each engine have receivers.
func (p *Plane) stagesOf() map[string]int {
	out := make(map[string]int, len(p.Cfg.Engines))
	for _, e := range p.Cfg.Engines {
		out[e.Name] = e.Stages
	}
	return out
}

// offer lets the receivers of an engine fetch a version from here, in the forms they want
// it in, and those before the last two no more.
func (p *Plane) offer(ctx context.Context, engine string, version loop.Version) error {
	if err := p.pushObjects(ctx, version); err != nil {
		return err
	}
	for _, form := range p.receivers.Forms(engine) {
		p.offering.Lock()
		err := p.offerForm(ctx, version, form)
		p.offering.Unlock()
		if err != nil {
			return err
		}
	}
	p.source.RemoveBelow(version - 1)
	return nil
}

// casts are the forms that a receiver may ask for.
var casts = map[string]weights.Cast{
	"bf16":        {DType: weights.BF16},
	"fp8-tensor":  {DType: weights.F8E4M3, Scale: weights.ScaleTensor},
	"fp8-channel": {DType: weights.F8E4M3, Scale: weights.ScaleChannel},
	"fp8-block":   {DType: weights.F8E4M3, Scale: weights.ScaleBlock},
}

func (p *Plane) offerForm(ctx context.Context, version loop.Version, form string) error {
	if p.source.Find(version, form) != nil {
		return nil
	}
	dir := filepath.Join(p.Dir, "weights", fmt.Sprintf("v%06d", version))
	manifest, err := p.Weights.Manifest(version)
	if err != nil {
		return err
	}
	files := manifest.Files
	if form != "" {
		cast, ok := casts[form]
		if !ok {
			return fmt.Errorf("a receiver asks for weights as %q, want one of %v", form, slices.Sorted(maps.Keys(casts)))
		}
		made, err := p.Weights.Cast(ctx, version, cast)
		if err != nil {
			return err
		}
		dir, files = filepath.Join(dir, "derived", made.Name), made.Files
	}
	text, err := os.ReadFile(filepath.Join(dir, weights.ManifestName))
	if err != nil {
		return err
	}
	var parts []transfer.Part
	for _, f := range files {
		if !strings.HasPrefix(f.Name, "optimizer") {
			parts = append(parts, transfer.Part{Name: f.Name, Size: f.Size})
		}
	}
	c, err := transfer.OpenCopy(version, form, text, parts, dir)
	if err != nil {
		return err
	}
	p.source.Add(c)
	return nil
}

// pushObjects puts a version into the run's object store, where the document asks for it.
func (p *Plane) pushObjects(ctx context.Context, version loop.Version) error {
	if !p.Cfg.Store.NATS.Objects {
		return nil
	}
	p.offering.Lock()
	defer p.offering.Unlock()
	if p.objects == nil {
		objects, err := p.log.Objects(ctx)
		if err != nil {
			return err
		}
		p.objects = &weights.Remote{Objects: objects, Prefix: ObjectPrefix}
	}
	if err := p.objects.Push(ctx, p.Weights, version); err != nil {
		return err
	}
	return p.objects.Prune(ctx, version-loop.Version(p.Cfg.Store.KeepVersions))
}
