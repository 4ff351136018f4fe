//go:build race

package mp_test

const raceEnabled = true
