package batch

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/headway-rl/headway/train/batch/batchtest"
)

// What is decoded without an error must be encoded to something that decodes to the same.
func FuzzDecode(f *testing.F) {
	files, err := filepath.Glob("testdata/*.safetensors")
	if err != nil || len(files) == 0 {
		f.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
		f.Add(raw[:len(raw)/2])
	}
	f.Add([]byte("\x02\x00\x00\x00\x00\x00\x00\x00{}"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		out, err := batchtest.Decode(raw)
		if err != nil {
			if out != nil {
				t.Error("tensors beside an error")
			}
			return
		}
		if n := int64(len(out.Tokens)); out.Offsets[len(out.Rewards)] != n {
			t.Errorf("offsets end at %d of %d", out.Offsets[len(out.Rewards)], n)
		}
		again, err := batchtest.Decode(append([]byte(nil), raw...))
		if err != nil || !reflect.DeepEqual(out, again) {
			t.Errorf("decoded twice: %v", err)
		}
	})
}

// Every byte of the tensors' numbers matters, and no change of one makes Decode panic.
func TestDecodeDamaged(t *testing.T) {
	p, err := New(plain(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	body, err := p.Share(0, 1, 60)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := body.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	want, err := batchtest.Decode(raw)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for i := len(body.header); i < len(raw); i++ {
		damaged := append([]byte(nil), raw...)
		damaged[i] ^= byte(1 << rng.IntN(8))
		if out, err := batchtest.Decode(damaged); err == nil && reflect.DeepEqual(out, want) {
			t.Errorf("byte %d of %d may be anything", i, len(raw))
		}
	}
	for n := range raw {
		if _, err := batchtest.Decode(raw[:n]); err == nil {
			t.Fatalf("the first %d of %d bytes are a batch", n, len(raw))
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	p, err := New(plain(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	body, err := p.Share(0, 1, 60)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := body.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string][2]string{
		`no metadata entry "headway"`: {`"headway"`, `"hurdles"`},
		"the tensor tokens is F32":    {`"tokens":{"dtype":"I32"`, `"tokens":{"dtype":"F32"`},
		`the tensor "tokenz"`:         {`"tokens":{`, `"tokenz":{`},
		"its stamp says 4":            {`\"group\":1,`, `\"group\":4,`},
		"counts 3 rollouts":           {`\"ready_version\":11,\"rollouts\":2}]`, `\"ready_version\":11,\"rollouts\":3}]`},
		"and the step starts from 10": {`\"version\":12,`, `\"version\":10,`},
	} {
		text := strings.Replace(string(raw), change[0], change[1], 1)
		if text == string(raw) {
			t.Fatalf("%q is not in the header", change[0])
		}
		if _, err := batchtest.Decode([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
}

var errBroken = errors.New("broken pipe")

type brokenWriter struct{ left int }

func (w *brokenWriter) Write(p []byte) (int, error) {
	if len(p) > w.left {
		return w.left, errBroken
	}
	w.left -= len(p)
	return len(p), nil
}

// A connection that breaks ends the writing with its error and the bytes that went out.
func TestWriteToBroken(t *testing.T) {
	p, err := New(draw(rand.New(rand.NewPCG(1, 1)), 40, 8, 4000), Options{})
	if err != nil {
		t.Fatal(err)
	}
	body, err := p.Share(0, 1, 60)
	if err != nil {
		t.Fatal(err)
	}
	for _, left := range []int64{0, 100, body.Size() / 2, body.Size() - 1} {
		if n, err := body.WriteTo(&brokenWriter{int(left)}); !errors.Is(err, errBroken) || n != left {
			t.Errorf("after %d bytes: %d written, %v", left, n, err)
		}
	}
	if n, err := body.WriteTo(&brokenWriter{int(body.Size())}); err != nil || n != body.Size() {
		t.Errorf("%d of %d bytes, %v", n, body.Size(), err)
	}
}
