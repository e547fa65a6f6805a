package peer

import (
	"crypto/tls"
	"errors"
	"fmt"
)

// checkTLS returns the error in the configuration of Options.TLS.
func checkTLS(c *tls.Config) error {
	own := c.VerifyConnection != nil
	switch {
	case len(c.Certificates) == 0 && (c.GetCertificate == nil || c.GetClientCertificate == nil):
		return errors.New("has no certificate: set Certificates, or GetCertificate and GetClientCertificate")
	case c.MaxVersion != 0 && c.MaxVersion < tls.VersionTLS13:
		return fmt.Errorf("has MaxVersion %s, and streams are TLS 1.3: leave MaxVersion 0", tls.VersionName(c.MaxVersion))
	case c.GetConfigForClient != nil:
		return errors.New("has GetConfigForClient, whose configuration would count in the place of this one, as it verifies nodes: use GetCertificate for certificates that change")
	case c.InsecureSkipVerify && !own:
		return errors.New("has InsecureSkipVerify without VerifyConnection: every certificate would do")
	case c.InsecureSkipVerify:
		return nil
	case c.RootCAs == nil:
		return errors.New("has no RootCAs: every certificate of a public authority would do")
	case c.ServerName == "":
		return errors.New("has no ServerName: set the name that all nodes' certificates carry, or InsecureSkipVerify and VerifyConnection")
	}
	return nil
}

// configs returns the configurations for dialling and listening, nil without TLS.
func configs(c *tls.Config) (client, server *tls.Config) {
	if c == nil {
		return nil, nil
	}
	client = c.Clone()
	client.MinVersion = tls.VersionTLS13
	client.DynamicRecordSizingDisabled = true // each write is one record
	server = client.Clone()
	server.SessionTicketsDisabled = true // each stream is verified anew
	if c.InsecureSkipVerify {
		server.ClientAuth = tls.RequireAnyClientCert // VerifyConnection verifies it
		return client, server
	}
	server.ClientAuth = tls.RequireAndVerifyClientCert
	if server.ClientCAs == nil {
		server.ClientCAs = c.RootCAs
	}
	server.VerifyConnection = func(state tls.ConnectionState) error {
		if err := state.PeerCertificates[0].VerifyHostname(c.ServerName); err != nil {
			return err
		}
		if c.VerifyConnection != nil {
			return c.VerifyConnection(state)
		}
		return nil
	}
	return client, server
}
