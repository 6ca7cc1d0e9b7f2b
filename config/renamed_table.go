package config

// renamed is the one table of names that changed. It makes the errors about old keys, their
// migration and docs/reference/renamed.md.
var renamed = []Renamed{}
