package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/headway-rl/headway/loop/media"
	"github.com/headway-rl/headway/loop/port"
)

// Sees implements [port.Seer].
func (e *Engine) Sees(modality string) error {
	if _, ok := e.opt.Dialect.(Viewer); !ok {
		return fmt.Errorf("%w: a server of kind %s is handed none", port.ErrMedia, e.opt.Dialect.Kind())
	}
	if modality != media.Image {
		return fmt.Errorf("%w of the modality %.20q: images are the only ones", port.ErrMedia, modality)
	}
	return nil
}

// look compares what the server has made of a prompt with media with what is recorded. Tokens count only after that: a
// server that leaves an image out, or expands one that is expanded, samples from another prompt and says nothing of it.
func (c *call) look(d *Delta) error {
	if len(c.request.Media) == 0 || c.seen {
		return nil
	}
	if d.Expanded == nil {
		if len(d.Tokens) == 0 && d.Finish == "" {
			return nil
		}
		return fmt.Errorf("%w: %w: it samples after %d media and does not say where it has read them", ErrLied, port.ErrMedia, len(c.request.Media))
	}
	if err := c.request.compare(d.Expanded); err != nil {
		return fmt.Errorf("%w: %w: %w", ErrLied, port.ErrMedia, err)
	}
	c.seen = true
	return nil
}

// compare says in which way the server has read another prompt.
func (r *Request) compare(x *Expansion) error {
	if len(x.Places) != len(r.Media) {
		return fmt.Errorf("it was sent %d media and has read %d", len(r.Media), len(x.Places))
	}
	if len(x.Prompt) != len(r.Prompt) {
		return fmt.Errorf("it has read a prompt of %d tokens, and %d are recorded: its processor expands placeholders otherwise, or twice", len(x.Prompt), len(r.Prompt))
	}
	for i := range r.Media {
		if want, got := &r.Media[i], &x.Places[i]; want.Modality != got.Modality || want.Offset != got.Offset || want.Length != got.Length {
			return fmt.Errorf("it has read %s %d at [%d, %d), and it is recorded at [%d, %d)", want.Modality, i, got.Offset, got.End(), want.Offset, want.End())
		}
	}
	if !slices.Equal(x.Prompt, r.Prompt) {
		return errors.New("it has read other tokens than were sent")
	}
	return nil
}

// See says how the engines take media of a modality, by the first that renders chats and takes some. An error that wraps
// port.ErrMedia says that none does.
func (t *Templates) See(ctx context.Context, modality string) (Sight, error) {
	got, err := t.ask(ctx, keyOf('s', []byte(modality)), func(ctx context.Context, e *Engine, caps *Capabilities, _ Templater) (got remembered, err error) {
		viewer, ok := e.opt.Dialect.(Viewer)
		if !ok {
			return got, e.fail("%w: a server of kind %s is handed none", port.ErrMedia, e.opt.Dialect.Kind())
		}
		sight, err := viewer.See(ctx, e.opt.Server, modality, caps)
		if err != nil {
			return got, e.fail("%w", err)
		}
		text, err := json.Marshal(sight)
		got.text = string(text)
		return got, err
	})
	if err != nil {
		return Sight{}, err
	}
	var sight Sight
	return sight, json.Unmarshal([]byte(got.text), &sight)
}
