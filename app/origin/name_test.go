package origin

import "testing"

func TestCheckName(t *testing.T) {
	for name, fine := range map[string]bool{
		"serve": true, "a run of Zoë.2": true, "猫": true,
		"": false, ".": false, "..": false, "a/b": false, "a\nb": false, "a\x1b[2J": false, "a\u202eb": false, "a\u009bb": false, "a\xff": false, "a\tb": false,
	} {
		if err := CheckName(name); (err == nil) != fine {
			t.Errorf("%q: %v", name, err)
		}
	}
}
