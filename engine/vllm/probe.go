package vllm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/headway-rl/headway/engine/upstream"
)

// Probe asks a server for its features, by trying. A path that is listed may still be switched off,
// and a flag does not tell the abilities of a build. It samples a few tokens, and for a moment it
// pauses the server: others should not switch its weights at that time. One that stays paused is
// resumed. As a guest it does neither.
func (d Dialect) Probe(ctx context.Context, s *upstream.Server) (upstream.Capabilities, error) {
	l := &learnt{}
	p := &prober{Dialect: d, ctx: ctx, s: s, l: l, caps: &upstream.Capabilities{Private: l}}
	for _, step := range []func() error{p.identify, p.wake, p.configured, p.vocabulary, p.sample, p.channels, p.distribution,
		p.pause, p.disk, p.adapters, p.cache, p.template, p.score, p.stats} {
		if err := step(); err != nil {
			return upstream.Capabilities{}, err
		}
	}
	p.missing()
	return *p.caps, nil
}

// prober is one probe under way.
type prober struct {
	Dialect
	ctx  context.Context
	s    *upstream.Server
	caps *upstream.Capabilities
	l    *learnt
	// config is what the server says of its own settings, where it does.
	config *config
	// developer: it has the paths of VLLM_SERVER_DEV_MODE. busy: it counts its requests.
	developer, busy bool
}

// config is the part of /server_info that matters here.
type config struct {
	Model struct {
		Logprobs string `json:"logprobs_mode"`
	} `json:"model_config"`
	Cache struct {
		Prefixes *bool `json:"enable_prefix_caching"`
	} `json:"cache_config"`
	Scheduler struct {
		Sequences int `json:"max_num_seqs"`
	} `json:"scheduler_config"`
	Lora     *struct{} `json:"lora_config"`
	Transfer *struct {
		Backend string `json:"backend"`
	} `json:"weight_transfer_config"`
}

// answered reports whether the server has said no in whatever words; other errors are returned:
// it did not answer.
func answered(err error) (no bool, _ error) {
	if _, unreachable := errors.AsType[*url.Error](err); unreachable || errors.Is(err, errAborted) {
		return false, err
	}
	return err != nil, nil
}

// identify finds out whether this is vLLM, and the name of the model.
func (p *prober) identify() error {
	var models struct {
		Data []struct {
			ID      string  `json:"id"`
			Owner   string  `json:"owned_by"`
			Parent  *string `json:"parent"`
			Context int     `json:"max_model_len"`
		} `json:"data"`
	}
	if err := p.s.Call(p.ctx, http.MethodGet, "/v1/models", nil, &models); upstream.Unknown(err) {
		return upstream.OtherKind(fmt.Errorf("%s is not vLLM: %w", p.s.URL(), err))
	} else if err != nil {
		return err
	}
	var names []string
	found := false
	for _, m := range models.Data {
		if m.Owner != "vllm" {
			return upstream.OtherKind(fmt.Errorf("%s is not vLLM: its models are owned by %q (kind sglang, llamacpp or openai, perhaps)", p.s.URL(), m.Owner))
		}
		if m.Parent != nil { // an adapter
			continue
		}
		names = append(names, m.ID)
		if !found && (p.s.Model == "" || p.s.Model == m.ID) {
			found, p.caps.Model, p.caps.Context = true, m.ID, m.Context
		}
	}
	if !found {
		return upstream.OtherKind(fmt.Errorf("%s serves no model %q but %s: want one of these as served_model, or none", p.s.URL(), p.s.Model, strings.Join(names, ", ")))
	}
	var version struct {
		Version string `json:"version"`
	}
	if _, err := answered(p.s.Call(p.ctx, http.MethodGet, "/version", nil, &version)); err != nil {
		return err
	}
	p.caps.Software = strings.TrimSpace("vLLM " + version.Version)
	paths, err := p.s.Paths(p.ctx)
	p.caps.Paths = paths
	_, err = answered(err)
	return err
}

// wake resumes a server that stays paused: somebody is gone who had paused it. A switch of weights
// that is under way is given some time to end by itself.
func (p *prober) wake() error {
	deadline := time.NewTimer(pausedLimit)
	defer deadline.Stop()
	for {
		paused, known, err := isPaused(p.ctx, p.s)
		p.developer = known
		if err != nil || !paused {
			return err
		}
		select {
		case <-time.After(pausedLimit / 20):
		case <-deadline.C:
			if p.s.Guest {
				return fmt.Errorf("%s is paused, by a switch of weights perhaps: ask again later", p.s.URL())
			}
			return p.Resume(p.ctx, p.s, p.caps)
		case <-p.ctx.Done():
			return p.ctx.Err()
		}
	}
}

// isPaused asks whether the server is paused; known is false where it does not say.
func isPaused(ctx context.Context, s *upstream.Server) (paused, known bool, err error) {
	var reply struct {
		Paused *bool `json:"is_paused"`
	}
	no, err := answered(s.Call(ctx, http.MethodGet, "/is_paused", nil, &reply))
	if err != nil || no || reply.Paused == nil {
		return false, false, err
	}
	return *reply.Paused, true, nil
}

// configured reads what the server says of its own settings.
func (p *prober) configured() error {
	var info struct {
		Config *config `json:"vllm_config"`
	}
	no, err := answered(p.s.Call(p.ctx, http.MethodGet, "/server_info?config_format=json", nil, &info))
	if err == nil && !no {
		p.config = info.Config
		if info.Config != nil {
			p.caps.Slots = info.Config.Scheduler.Sequences
		}
	}
	return err
}

// pause tries whether a pause is one: nothing is sampled in it, and all goes on after it.
func (p *prober) pause() (err error) {
	if !p.developer || p.s.Guest {
		p.caps.Pause = p.developer
		return nil
	}
	no, err := answered(p.Pause(p.ctx, p.s, upstream.Update{}, p.caps))
	if err != nil || no {
		return err
	}
	defer func() { // whatever has happened
		ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), resumeLimit)
		defer cancel()
		err = errors.Join(err, p.Resume(ctx, p.s, p.caps))
	}()
	paused, _, err := isPaused(p.ctx, p.s)
	if err != nil || !paused {
		return err
	}
	ctx, cancel := context.WithTimeout(p.ctx, pauseProof)
	defer cancel()
	_, err = p.ask(ctx, 1)
	switch {
	case err == nil: // it has sampled
		return nil
	case ctx.Err() == nil:
		_, err = answered(err)
		return err
	}
	p.caps.Pause = p.ctx.Err() == nil
	return p.ctx.Err()
}

// disk finds the way by which weights come from a directory.
func (p *prober) disk() error {
	if c := p.config; c != nil && c.Transfer != nil && c.Transfer.Backend == "disk" {
		_, start := p.caps.Paths["/start_weight_update"]
		p.l.transfer, p.l.phases, p.caps.UpdateDisk = true, start || p.caps.Paths == nil, true
		return nil
	}
	if !p.developer {
		return nil
	}
	// A word that no worker knows makes it refuse the call before it begins, and say which word of
	// all it did not know first.
	body := `{"method":"reload_weights","kwargs":{"weights_path":"","headway_probe":true}}`
	content, err := p.s.Open(p.ctx, http.MethodPost, upstream.Call{Path: "/collective_rpc", Body: []byte(body), Header: closing()})
	if err == nil {
		return errors.Join(content.Close(), fmt.Errorf("%s/collective_rpc has taken an argument that does not exist: its weights are unknown now, start it again", p.s.URL()))
	}
	if _, err := answered(err); err != nil {
		return err
	}
	p.caps.UpdateDisk = !absent(err) && !strings.Contains(err.Error(), "unexpected keyword argument 'weights_path'")
	// The server breaks off the connection after that answer. A proxy between may use it again: a
	// question that may be repeated finds that out, and nothing else does.
	_, _, err = isPaused(p.ctx, p.s)
	return err
}

// adapters finds out whether adapters can be loaded: the path is there only where that is allowed, and the
// server's settings say whether it was started for adapters.
func (p *prober) adapters() error {
	load := p.s.Call(p.ctx, http.MethodPost, "/v1/load_lora_adapter", struct{}{}, nil)
	if _, err := answered(load); err != nil {
		return err
	}
	if !p.developer { // it cannot be given a label, and names every token "default"
		p.caps.VersionSpans = false
	}
	p.caps.UpdateLora = !absent(load) && (p.config == nil || p.config.Lora != nil)
	return nil
}

// cache finds out what can be done about keys and values of old weights. A salt that is empty is
// refused by those that know salts, and ignored by all others.
func (p *prober) cache() error {
	p.caps.Flush = p.developer
	if !p.s.Guest {
		no, err := answered(p.s.Call(p.ctx, http.MethodPost, "/reset_prefix_cache", nil, nil))
		if err != nil {
			return err
		}
		p.caps.Flush = !no
	}
	body := map[string]any{"model": p.caps.Model, "prompt": probePrompt, "max_tokens": 1, "cache_salt": ""}
	body = bounded(p.s, body, 1)
	err := p.s.Call(p.ctx, http.MethodPost, pathCompletions, body, nil)
	p.caps.Salt = upstream.StatusOf(err)/100 == 4 && !absent(err)
	_, err = answered(err)
	return err
}

// template finds out whether chats can be rendered and tokens be read.
func (p *prober) template() error {
	tokens, err := p.Render(p.ctx, p.s, []byte(`[{"role":"user","content":"a"}]`), nil, true, p.caps)
	if no, err := answered(err); no || err != nil {
		return err
	}
	_, err = derender(p.ctx, p.s, tokens, p.caps)
	no, err := answered(err)
	if err != nil {
		return err
	}
	p.l.derender = !no
	_, err = p.Decode(p.ctx, p.s, tokens, p.caps)
	no, err = answered(err)
	p.caps.Template = !no && err == nil && len(tokens) > 0
	return err
}

func (p *prober) score() error {
	scores, err := p.Score(p.ctx, p.s, probePrompt, p.caps)
	no, err := answered(err)
	p.caps.Score = err == nil && !no && plausible(scores)
	return err
}

// metricsBytesMax bounds what is read of a server's metrics.
const metricsBytesMax = 16 << 20

// stats looks whether the metrics have a line of vLLM's own: without one it was started with --disable-log-stats.
func (p *prober) stats() error {
	body, err := p.s.Open(p.ctx, http.MethodGet, upstream.Call{Path: "/metrics"})
	if err == nil {
		defer body.Close()
		var text []byte
		text, err = io.ReadAll(io.LimitReader(body, metricsBytesMax))
		for line := range bytes.Lines(text) {
			p.busy = p.busy || bytes.HasPrefix(line, []byte("vllm:num_requests_running"))
		}
	}
	_, err = answered(err)
	return err
}
