package uetnet

import "github.com/uetkit/uetkit/uet"

// An Option changes what Open, and Dial and Listen of package stream, ask uet for.
type Option func(*uet.Info)

// WithConfig sets the settings of the provider: security, bounds, times, sockets. Options after it
// change single fields.
func WithConfig(c uet.Config) Option { return func(in *uet.Info) { in.Config = c } }

// WithSecurity encrypts and authenticates every packet (uet.LoadClusterKey,
// msg.LoadTLS). Both ends need it.
func WithSecurity(s *uet.Security) Option { return func(in *uet.Info) { in.Config.Security = s } }

// WithHints calls f with the hints before they are given to uet.GetInfo. f must not change the
// endpoint type.
func WithHints(f func(hints *uet.Info)) Option { return f }
