package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// script is a conversation of one actor with a server. testdata/README.md says what its fields mean.
type script struct {
	About     string     `json:"about"`
	Actor     string     `json:"actor"`
	Options   options    `json:"options"`
	Calls     []step     `json:"calls"`
	Exchanges []exchange `json:"exchanges"`
}

type options struct {
	URLs         []string          `json:"urls"`
	Token        string            `json:"token"`
	PatienceS    float64           `json:"patience_s"`
	Name         string            `json:"name"`
	Rank         int               `json:"rank"`
	WorldSize    int               `json:"world_size"`
	StepMostS    float64           `json:"step_s_max"`
	References   bool              `json:"references"`
	Concurrency  int               `json:"concurrency"`
	GraceS       float64           `json:"grace_s"`
	Environments map[string][]move `json:"environments"`
}

// step is a call of the actor, or a pause between two.
type step struct {
	Do string `json:"do"`
	// Arguments.
	Path      string               `json:"path"`
	JSON      map[string]any       `json:"json"`
	TimeoutS  float64              `json:"timeout_s"`
	PatienceS *float64             `json:"patience_s"`
	Version   *int64               `json:"version"`
	Prompts   int                  `json:"prompts"`
	NoBatch   bool                 `json:"no_batch"`
	Model     map[string][]float32 `json:"model"`
	Optimizer map[string][]float32 `json:"optimizer"`
	Files     map[string]int       `json:"files"`
	Reason    string               `json:"reason"`
	Failed    bool                 `json:"failed"`
	Kind      string               `json:"kind"`
	Name      string               `json:"name"`
	S         float64              `json:"s"`
	StopS     *float64             `json:"stop_s"`
	// Results.
	Want       any         `json:"want"`
	State      any         `json:"state"`
	Error      string      `json:"error"`
	Unanswered bool        `json:"unanswered"`
	Took       *[2]float64 `json:"took"`
}

// move is a part of a play.
type move struct {
	SleepS  float64 `json:"sleep_s"`
	Chat    string  `json:"chat"`
	Tokens  []int32 `json:"tokens"`
	Ask     string  `json:"ask"`
	Most    int     `json:"most"`
	Verdict string  `json:"verdict"`
	Fail    string  `json:"fail"`
	// Reward ends the play.
	Reward *float64 `json:"reward"`
}

func TestScripts(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.json")
	if err != nil || len(paths) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".json"), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var said script
			reader := json.NewDecoder(bytes.NewReader(text))
			reader.DisallowUnknownFields()
			if err := reader.Decode(&said); err != nil {
				t.Fatal(err)
			}
			directory := t.TempDir()
			synctest.Test(t, func(t *testing.T) { play(t, said, directory) })
		})
	}
}

// play has an actor make a script's calls.
func play(t *testing.T, said script, directory string) {
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	server := newServer(t, said.Exchanges, directory)
	server.cancel = cancel
	if len(said.Options.URLs) == 0 {
		said.Options.URLs = []string{"http://a"}
	}
	common := Options{
		HTTP: server.client(), URLs: said.Options.URLs, Token: said.Options.Token, Seed: 7,
		Patience: seconds(said.Options.PatienceS),
	}
	var doing interface {
		do(ctx context.Context, one step) (any, error)
		state() any
		close()
	}
	switch said.Actor {
	case "transport":
		doing = newPost(t, common)
	case "trainer":
		doing = newTraining(t, common, said.Options, directory)
	case "worker":
		doing = newWorking(t, common, said.Options)
	default:
		t.Fatalf("no actor %q", said.Actor)
	}
	for at, one := range said.Calls {
		began := time.Now()
		if one.Do == "sleep" {
			time.Sleep(seconds(one.S))
			continue
		}
		found, err := doing.do(ctx, one)
		checkError(t, at, one, err)
		if one.Want != nil && !alike(one.Want, plain(t, found)) {
			t.Errorf("call %d (%s): got %v, want %v", at, one.Do, plain(t, found), one.Want)
		}
		if one.State != nil && !alike(one.State, plain(t, doing.state())) {
			t.Errorf("call %d (%s): state is %v, want %v", at, one.Do, plain(t, doing.state()), one.State)
		}
		if one.Took != nil && !within(time.Since(began), *one.Took) {
			t.Errorf("call %d (%s): took %v, want %v s", at, one.Do, time.Since(began), *one.Took)
		}
		if t.Failed() {
			break
		}
	}
	doing.close()
	server.over()
}

func checkError(t *testing.T, at int, one step, err error) {
	t.Helper()
	var refused *Error
	switch {
	case one.Error == "" && err != nil:
		t.Errorf("call %d (%s): %v", at, one.Do, err)
	case one.Error != "" && (!errors.As(err, &refused) || refused.Kind != Kind(one.Error)):
		t.Errorf("call %d (%s): got the error %v, want %s", at, one.Do, err, one.Error)
	case refused != nil && refused.Unanswered != one.Unanswered:
		t.Errorf("call %d (%s): unanswered is %v, want %v", at, one.Do, refused.Unanswered, one.Unanswered)
	}
}

// within reports that a time lies between two bounds in seconds, to a microsecond.
func within(d time.Duration, bounds [2]float64) bool {
	return d >= seconds(bounds[0])-time.Microsecond && d <= seconds(bounds[1])+time.Microsecond
}

// plain is a value as JSON says it.
func plain(t *testing.T, value any) any {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	var found any
	if err := json.Unmarshal(text, &found); err != nil {
		t.Fatal(err)
	}
	return found
}

// alike reports that a value is the wanted one. Of an object only the wanted keys count, if there are any. A wanted
// null is an absent key.
func alike(want, have any) bool {
	keys, object := want.(map[string]any)
	if !object || len(keys) == 0 {
		return reflect.DeepEqual(want, have)
	}
	found, object := have.(map[string]any)
	if !object {
		return false
	}
	for key, value := range keys {
		if got, there := found[key]; there == (value == nil) || (there && !alike(value, got)) {
			return false
		}
	}
	return true
}

// leased says which batch an answer has, and what is wrong with it.
type leased struct {
	Lease     int64          `json:"lease"`
	Attempt   int64          `json:"attempt"`
	Version   int64          `json:"version"`
	DeadlineS float64        `json:"deadline_s"`
	Kind      string         `json:"kind"`
	Rank      int            `json:"rank"`
	WorldSize int            `json:"world_size"`
	Tensors   map[string]any `json:"tensors"`
	Without   string         `json:"without"`
	// References: the answer names the batch's group, whose body is a batch of lease 0.
	References bool `json:"references"`
}

// body is a batch of a group of two rollouts.
func (l leased) body(t *testing.T) []byte {
	t.Helper()
	kind := l.Kind
	if kind == "" {
		kind = "train"
	}
	header := map[string]any{
		"lease": l.Lease, "attempt": l.Attempt, "kind": kind, "version": l.Version, "deadline_s": l.DeadlineS,
		"rank": l.Rank, "world_size": max(l.WorldSize, 1), "tokens": 9, "response_tokens": 3, "rollouts": 2, "groups": 1,
		"staleness_mean": 0, "staleness_max": 0,
		"stamps": []any{map[string]any{"group": 7, "start_version": l.Version, "ready_version": l.Version, "rollouts": 2}},
	}
	if l.References {
		body := leased{Version: l.Version}.body(t)
		hash := sha256.Sum256(body)
		header["references"] = []any{map[string]any{"group": 7, "rollouts": 2, "bytes": len(body), "sha256": hex.EncodeToString(hash[:])}}
		text, err := json.Marshal(header)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	v := float64(l.Version)
	content := map[string][]float64{
		"tokens": {0, 5, 1, 7, 2, 0, 5, 1, 9}, "offsets": {0, 5, 9}, "loss_mask": {0, 0, 0, 1, 1, 0, 0, 0, 1},
		"logprobs": {0, 0, 0, -.25, -.25, 0, 0, 0, -.25}, "versions": {-1, -1, -1, v, v, -1, -1, -1, v},
		"advantages": {1, -1}, "rewards": {1, 0}, "groups": {7, 7}, "samples": {0, 1},
	}
	for name, list := range l.Tensors {
		content[name] = nil
		for _, number := range list.([]any) {
			content[name] = append(content[name], number.(float64))
		}
	}
	var tensors []Tensor
	for _, one := range [][2]string{
		{"tokens", "I32"}, {"offsets", "I64"}, {"loss_mask", "U8"}, {"logprobs", "F32"}, {"versions", "I32"},
		{"advantages", "F32"}, {"rewards", "F32"}, {"groups", "I64"}, {"samples", "I32"},
	} {
		if one[0] != l.Without {
			tensors = append(tensors, numbered(one[0], one[1], content[one[0]]))
		}
	}
	text, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	return encode(tensors, map[string]string{"headway": string(text)})
}

// numbered makes a tensor of numbers.
func numbered(name, kind string, list []float64) Tensor {
	tensor := Tensor{Name: name, Type: kind, Shape: []int{len(list)}}
	for _, x := range list {
		var value any
		switch kind {
		case "I32":
			value = int32(x)
		case "I64":
			value = int64(x)
		case "U8":
			value = uint8(x)
		case "F32":
			value = float32(x)
		}
		tensor.Data, _ = binary.Append(tensor.Data, binary.LittleEndian, value)
	}
	return tensor
}

// tensorsOf makes tensors of lists by name, in the order of the names.
func tensorsOf(lists map[string][]float32) []Tensor {
	var tensors []Tensor
	for _, name := range sorted(lists) {
		tensors = append(tensors, Floats(name, lists[name]...))
	}
	return tensors
}
