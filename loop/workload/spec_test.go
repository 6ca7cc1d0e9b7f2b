package workload

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/goccy/go-yaml"
)

// TestSpecs runs testdata/specs: each case is a section as a config writes it,
// answered with the model's moments or with the reason it is refused.
func TestSpecs(t *testing.T) {
	datadriven.RunTest(t, "testdata/specs", func(t *testing.T, d *datadriven.TestData) string {
		switch d.Cmd {
		case "length":
			var spec LengthSpec
			if err := yaml.UnmarshalWithOptions([]byte(d.Input), &spec, yaml.Strict()); err != nil {
				t.Fatal(err)
			}
			l, err := spec.Build()
			if err != nil {
				return refused(t, err)
			}
			return fmt.Sprintf("mean %.1f · p50 %d · p99 %d · max %d tokens · M(8) %.3f\n",
				l.Mean(), l.Quantile(0.5), l.Quantile(0.99), l.Quantile(1), l.TailMultiplier(8))
		case "service":
			var spec TimesSpec
			if err := yaml.UnmarshalWithOptions([]byte(d.Input), &spec, yaml.Strict()); err != nil {
				t.Fatal(err)
			}
			s, err := spec.Build()
			if err != nil {
				return refused(t, err)
			}
			return fmt.Sprintf("mean %.4f s · p50 %.4f · p99 %.4f\n", s.Mean()/nsPerS, s.Inverse(0.5)/nsPerS, s.Inverse(0.99)/nsPerS)
		case "lines":
			return fileCase(t, d.Input)
		}
		t.Fatalf("unknown command %s", d.Cmd)
		return ""
	})
}

// refused renders an error, and insists that a bad field is a FieldError.
func refused(t *testing.T, err error) string {
	var field *FieldError
	if !errors.As(err, &field) && !strings.Contains(err.Error(), "no such file") {
		t.Errorf("%v is not a FieldError", err)
	}
	return "refused: " + err.Error() + "\n"
}

// fileCase reads the input as a file of lengths.
func fileCase(t *testing.T, content string) string {
	path := filepath.Join(t.TempDir(), "lengths")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	groups, err := ReadLengths(path)
	if err != nil {
		return "refused: " + strings.ReplaceAll(err.Error(), path, "lengths") + "\n"
	}
	return fmt.Sprintf("%v\n", groups)
}

func TestReadServiceTimes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "times.jsonl")
	if err := os.WriteFile(path, []byte("{\"times_s\":[0.5,1]}\n{\"times_s\":[2]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := buildTimes(t, TimesSpec{Kind: KindEmpirical, File: path})
	near(t, "mean", s.Mean(), 1.375e9, 1e-12)
	if err := os.WriteFile(path, []byte("{\"times_s\":[0.5,1]}\n{\"times_s\":[-2]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := TimesSpec{Kind: KindEmpirical, File: path}.Build()
	if err == nil || !strings.Contains(err.Error(), path+":2:") {
		t.Errorf("a negative time gives %v, want an error that names line 2", err)
	}
}

// FuzzReadLengths: any file is either refused with its line or yields valid
// lengths.
func FuzzReadLengths(f *testing.F) {
	f.Add("12\n13\n")
	f.Add("[1,2]\n{\"group\":\"a\",\"length\":3}")
	f.Add("{\"lengths\":[]}")
	f.Fuzz(func(t *testing.T, content string) {
		read := fileReader[int]{list: "lengths", single: "length", parse: parseTokens}
		if err := read.read(strings.NewReader(content), "file"); err != nil {
			if !strings.HasPrefix(err.Error(), "file:") {
				t.Errorf("error %q does not name the file", err)
			}
			return
		}
		if _, err := (LengthSpec{Kind: KindEmpirical, Groups: read.groups}).Build(); err != nil {
			t.Errorf("lengths that were read are refused: %v", err)
		}
	})
}
