package diagnosis

import "testing"

// Every kind of finding has words for a run in which it names no setting.
func TestEveryFindingHasASettingOrAReason(t *testing.T) {
	for _, c := range checks {
		if (&facts{}).noSetting(&Finding{Code: c.code}) == "" {
			t.Errorf("%s: nothing says why it would name no setting", c.code)
		}
	}
	if len(noSettings) != len(checks) {
		t.Errorf("%d reasons for %d kinds of findings", len(noSettings), len(checks))
	}
}
