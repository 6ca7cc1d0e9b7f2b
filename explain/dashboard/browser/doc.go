// Package browser holds the tests of the dashboard in Chromium: the built program serves a recorded run, and a
// browser clicks through its pages. There is nothing in it but tests.
//
// The system's Chromium is used; where there is none the tests are passed over, unless HEADWAY_BROWSER names
// one: then it must be there. HEADWAY_SCREENSHOTS=DIR keeps pictures of every view. HEADWAY_LONG=1 measures what
// docs/dashboard.md says of speed and memory.
package browser
