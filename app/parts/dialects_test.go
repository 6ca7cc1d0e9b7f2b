package parts

import (
	"reflect"
	"strings"
	"testing"

	"github.com/headway-rl/headway/config"
)

// Every kind of engine that a document may name and that is a server speaks as itself; no other is spoken to.
func TestEveryKindOfServerHasItsDialect(t *testing.T) {
	field, found := reflect.TypeFor[config.Engine]().FieldByName("Kind")
	if !found {
		t.Fatal("an engine has no kind")
	}
	for kind := range strings.FieldsSeq(field.Tag.Get("allowed")) {
		e := config.Engine{Name: "e", Kind: kind}
		server := e.External() && !(config.Config{Engines: []config.Engine{e}}).Tinker()
		dialect, err := DialectOf(e, t.Logf)
		if server && (err != nil || dialect.Kind() != kind) {
			t.Errorf("%s: %v", kind, err)
		}
		if !server && err == nil {
			t.Errorf("%s is no server, and speaks %s", kind, dialect.Kind())
		}
	}
	if _, err := DialectOf(config.Engine{Name: "e", Kind: "new"}, t.Logf); err == nil || !strings.Contains(err.Error(), `"new"`) || !strings.Contains(err.Error(), "sglang, vllm") {
		t.Errorf("a kind without a dialect: %v", err)
	}
}
