package plan

import (
	"strings"
	"testing"
)

// FuzzMeasuredKeys: a document of measurements may be anything. What is read of it is KEY=VALUE on one line.
func FuzzMeasuredKeys(f *testing.F) {
	f.Add([]byte("rollout:\n  slots: 8\nmodelled:\n  length: {kind: fixed, mean: 3}\nhardware:\n  decode: [[1, 2.5], [4, 7]]\n"))
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte("rollout: {? [a]: 1, <<: {b: \"x\\ny\"}}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		overrides, err := MeasuredKeys("--measured", text)
		if err != nil {
			return
		}
		for _, o := range overrides {
			if !strings.Contains(o.Text, "=") {
				t.Errorf("%q", o.Text)
			}
		}
	})
}
