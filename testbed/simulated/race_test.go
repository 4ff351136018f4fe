//go:build race

package simulated

const raceEnabled = true
