package weights

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"testing/iotest"

	"github.com/headway-rl/headway/loop"
)

// A header is read the same in one piece and streamed, and what is accepted covers the
// data once.
func FuzzHeader(f *testing.F) {
	f.Add(smallModel(f, 1, 2))
	f.Add(file(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}}`, 6))
	f.Add(file(`{"__metadata__":{"a":"b"},"a":{"dtype":"BF16","shape":[],"data_offsets":[0,2]}}`, 2))
	f.Fuzz(func(t *testing.T, content []byte) {
		h, err := ParseHeader(content, int64(len(content)))
		in := &inspector{size: -1}
		streamed := copyAll(t.Context(), in, iotest.OneByteReader(bytes.NewReader(content)))
		if streamed == nil {
			streamed = in.end()
		}
		if (err == nil) != (streamed == nil) {
			t.Fatalf("in one piece: %v; streamed: %v", err, streamed)
		}
		if err != nil {
			return
		}
		if !slices.EqualFunc(h.Entries, in.header.Entries, sameEntry) {
			t.Fatalf("in one piece %+v, streamed %+v", h.Entries, in.header.Entries)
		}
		end := int64(0)
		for _, e := range h.Entries {
			size, err := tensorBytes(e.DType, e.Shape)
			if err != nil || e.Begin != end || e.End-e.Begin != size {
				t.Fatalf("%+v after byte %d: %v", e, end, err)
			}
			end = e.End
		}
		if h.DataStart+end != int64(len(content)) {
			t.Fatalf("tensors end at %d of %d", h.DataStart+end, len(content))
		}
	})
}

// What a manifest's text says comes back when it is written again; nothing else is accepted.
func FuzzManifest(f *testing.F) {
	three := loop.Version(3)
	for _, m := range []Manifest{
		{Version: 7, BaseVersion: loop.NoVersion, Kind: KindFull, Lease: 2, Files: []File{{Name: ModelName, Size: 5, Hash: sumText(nil)}}, Tensors: []TensorInfo{{"a", BF16, []int{2, 1}, ModelName}}},
		{Version: 7, BaseVersion: loop.NoVersion, Kind: KindNone, RestoredFrom: &three},
		{Version: 7, BaseVersion: 6, Kind: KindDelta, Encoding: XOR, Files: []File{{Name: DeltaName}}},
	} {
		text := m.append(nil)
		f.Add(text[:len(text)-hashTail])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := parseAnyManifest(sealManifest(body, 0), 7, "path")
		if err != nil {
			if !errors.As(err, new(*CorruptError)) {
				t.Fatal(err)
			}
			return
		}
		again, err := parseAnyManifest(m.append(nil), 7, "path")
		if err != nil || again.Kind != m.Kind || len(again.Files) != len(m.Files) || !slices.EqualFunc(again.Tensors, m.Tensors, func(a, b TensorInfo) bool {
			return a.Name == b.Name && a.DType == b.DType && slices.Equal(a.Shape, b.Shape) && a.File == b.File
		}) {
			t.Fatalf("%+v comes back as %+v, %v", m, again, err)
		}
		for _, f := range m.Files {
			if checkName(f.Name) != nil {
				t.Fatalf("the name %q", f.Name)
			}
		}
	})
}
