package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/headway-rl/headway/cmd/lab/world/plan"
	"github.com/headway-rl/headway/store/weights"
)

// writeModel writes the model that engines and trainer begin with, with a context of so many more tokens.
func writeModel(dir string, more, floats int) error {
	raw, err := weights.AppendHeader(nil, []weights.Entry{{Name: "lm_head.weight", DType: weights.F32, Shape: []int{floats}}})
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		"config.json":     fmt.Appendf(nil, `{"vocab_size": %d, "max_position_embeddings": %d}`, Policy.Vocabulary, contextTokens+more),
		"tokenizer.json":  []byte("{}"),
		weights.ModelName: append(raw, make([]byte, 4*floats)...),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// writeTasks writes the prompts that a plane plays: those of the workers.
func writeTasks(path string) error {
	var lines []byte
	for i := range uint64(prompts) {
		lines = fmt.Appendf(lines, "{\"prompt\": %q, \"answer\": \"\"}\n", Policy.Spell(prompt(i+1)...))
	}
	return os.WriteFile(path, lines, 0o644)
}

const document = `
model: {path: model}
engines: [%s]
environment: {kind: %s, name: numbers, prompt_tokens_max: %d, response_tokens_max: %d}
rollout: {group_size: %d, redundancy: %d%s%s}
train: {batch: %d}
queue: {%s}
sync: {%s}
trainer: {kind: remote, steps: %d}
store: {dir: runs, samples_every: 0%s}
server: {listen: "%s%s", token_file: tokens, lease_s: %g, claim_s: %g}
failures: {max_attempts: %d}
%s`

// writeDocuments writes the document of each plane, and the tokens.
func (w *World) writeDocuments() error {
	p := w.plan
	var roles strings.Builder
	for _, role := range []string{"trainer", "environment", "engine", "viewer", "admin"} {
		fmt.Fprintf(&roles, "%s %s\n", role, token(role))
	}
	if err := os.WriteFile("tokens", []byte(roles.String()), 0o600); err != nil {
		return err
	}
	if err := writeTasks("tasks.jsonl"); err != nil {
		return err
	}
	var engines []string
	for i, e := range p.Engines {
		stages := ""
		if i < p.Receivers {
			stages = fmt.Sprintf(", stages: 1, weights_dir: receiver%d", i)
		}
		if e.Cell > 0 {
			stages += ", cell: " + plan.CellName(e.Cell)
		}
		engines = append(engines, fmt.Sprintf("{kind: vllm, name: engine%d, url: \"http://%s:8000\", slots: %d%s}", i, w.actors[fmt.Sprint("engine", i)].host.Load().IP, e.Slots, stages))
	}
	r, gateway, kind, promptMost := p.Rules, "", "remote", promptTokensMax+p.Store.Prompt
	if p.Chat != nil { // all turns but the last are in the prompt
		gateway, promptMost = fmt.Sprintf("gateway: {wait_s: %g}\n", float64(p.Chat.WaitMS)/1000), 200
		if p.Chat.Players > 0 {
			address := fmt.Sprint("http://", w.actors["engine0"].host.Load().IP, verifierPort)
			kind = fmt.Sprintf(`tasks, players: %d, tasks: {file: tasks.jsonl}, verifier: {kind: http, url: "%s/verify"}`, p.Chat.Players, address)
			if p.Chat.Environment {
				kind = fmt.Sprintf(`openenv, openenv: {url: "%s", observation: text}, `, address) + strings.TrimPrefix(kind, "tasks, ")
			}
		}
	}
	channels := ""
	if p.Rows {
		channels = ", channels: [" + strings.Join(w.channels(), ", ") + "]"
	}
	placement := ""
	if r.CacheAware {
		placement = ", placement: cache_aware"
	}
	for i := range p.Planes {
		name := fmt.Sprint("plane", i)
		text := fmt.Sprintf(document, strings.Join(engines, ", "), kind, promptMost, responseTokens, r.GroupSize, r.Redundancy, channels, placement, r.Batch, r.Queue, r.Sync, p.Steps, w.storeKeys(),
			w.actors[name].host.Load().IP, apiPort, float64(r.LeaseMS)/1000, float64(r.ClaimMS)/1000, r.Attempts, gateway)
		if err := os.WriteFile(name+".yaml", []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// storeKeys are the document's keys under store that the plan sets.
func (w *World) storeKeys() string {
	p, keys := w.plan, ""
	if p.Durable {
		keys += ", durability: always"
	}
	if n := p.Store.SnapshotEvery; n > 0 {
		keys += fmt.Sprint(", snapshot_every: ", n)
	}
	if p.Store.NoTrace {
		keys += ", trace: none"
	}
	var nats []string
	if !p.Embedded {
		nats = append(nats, fmt.Sprintf("url: %q, writer_s: %g", w.brokerURL(), float64(p.Rules.WriterMS)/1000))
	}
	if p.Brokers > 1 {
		nats = append(nats, fmt.Sprint("replicas: ", p.Brokers))
	}
	if n := p.Store.PayloadBytesMax; n > 0 {
		nats = append(nats, fmt.Sprint("payload_bytes_max: ", n))
	}
	if len(nats) > 0 {
		keys += fmt.Sprintf(", nats: {%s}", strings.Join(nats, ", "))
	}
	return keys
}
