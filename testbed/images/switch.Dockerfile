# The switch of the testbed.
FROM scratch
COPY testbed uetswitch /
ENTRYPOINT ["/testbed", "agent", "switch", "--socket", "/out/http.sock", "--"]
