// Package stream has streams over uet, shaped like those of package net: Dial and Listen make a
// Conn, which is a net.Conn over a connected endpoint (FI_EP_MSG). What runs over TCP runs over
// it, crypto/tls and net/http among others. Options are those of package uetnet.
//
// Conn.Endpoint returns the uet.Endpoint below. All methods may be called from any goroutine.
package stream
