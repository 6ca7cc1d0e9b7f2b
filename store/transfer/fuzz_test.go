package transfer

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// FuzzChunk: what is taken for a chunk is one, to its last byte.
func FuzzChunk(f *testing.F) {
	f.Add(append(head{3, 4, 0xb61e98c2}.append(nil), "abcd"...), uint32(3), uint16(4))
	f.Add(head{3, 0, 0}.append(nil), uint32(3), uint16(0))
	f.Fuzz(func(t *testing.T, stream []byte, index uint32, length uint16) {
		buffer := make([]byte, length)
		sum, err := readChunk(bytes.NewReader(stream), index, buffer)
		if err != nil {
			return
		}
		if want := append(head{index, uint32(length), sum}.append(nil), buffer...); !bytes.HasPrefix(stream, want) {
			t.Errorf("%x is read as %x", stream, want)
		}
	})
}

// FuzzOffer: the offer of a parent is refused, or its files are all below the directory of the version.
func FuzzOffer(f *testing.F) {
	f.Add([]byte(`{"Version":1,"ManifestText":"{\"files\":[{\"name\":\"a\",\"hash\":\"sha256:00\"}]}","Parts":[{"Name":"a","Size":3},{"Name":"b.json","Size":0}]}`))
	for _, name := range []string{"../a", "/a", "a/../../b", ".", "", "a\u0000", `..\\a`, "manifest.json"} {
		text, err := json.Marshal(Offer{Version: 1, ManifestText: "{}", Parts: []Part{{Name: name, Size: 1}}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var offer Offer
		if json.Unmarshal(text, &offer) != nil || len(offer.Parts) > 8 {
			return
		}
		for _, part := range offer.Parts {
			if part.Size > 1<<20 { // room is made for what the control plane's hash is of, which these are not
				return
			}
		}
		outside := t.TempDir()
		dir := filepath.Join(outside, "inside", "here")
		c, err := createCopy(offer.Version, []byte(offer.ManifestText), offer.Parts, dir)
		if err == nil {
			_, _ = c.hashes()
			c.Close()
		}
		err = filepath.WalkDir(outside, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() && filepath.Dir(path) != dir {
				t.Errorf("%q is written", path)
			}
			return err
		})
		if err != nil && !os.IsNotExist(err) {
			t.Error(err)
		}
	})
}

// FuzzKey: a key that the secret has not signed opens nothing.
func FuzzKey(f *testing.F) {
	const secret = "a secret of a parent"
	now := time.Unix(1000, 0)
	good := SignKey(secret, 3, "", now.Add(time.Minute))
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add("1060.")
	f.Add(SignKey("another", 3, "", now.Add(time.Minute)))
	f.Fuzz(func(t *testing.T, key string) {
		if checkKey(secret, key, offerKey{3, ""}, now) == nil && !strings.EqualFold(key, good) { // hexadecimal digits have two cases
			t.Errorf("%q opens", key)
		}
	})
}
