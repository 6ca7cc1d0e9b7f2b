package plane

import (
	"fmt"
	"sync"
	"time"
)

// sparingEvery is how long a text is not said again. sparingTexts bounds how many are remembered.
const (
	sparingEvery = time.Minute
	sparingTexts = 256
)

// sparingly is say for who would say the same for every slot and every try: each text once a minute.
func (p *Plane) sparingly() func(format string, args ...any) { return sparing(p.App.Now, p.logf) }

func sparing(now func() time.Time, logf func(format string, args ...any)) func(format string, args ...any) {
	var mu sync.Mutex
	said := map[string]time.Time{}
	return func(format string, args ...any) {
		text, at := fmt.Sprintf(format, args...), now()
		mu.Lock()
		last, known := said[text]
		again := known && at.Sub(last) < sparingEvery
		if !again {
			if len(said) >= sparingTexts {
				clear(said)
			}
			said[text] = at
		}
		mu.Unlock()
		if !again {
			logf("%s", text)
		}
	}
}
