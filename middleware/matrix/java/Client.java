import java.io.*;
import java.net.URI;
import java.net.http.*;
import java.net.http.HttpRequest.BodyPublishers;
import java.nio.charset.StandardCharsets;
import java.security.cert.X509Certificate;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.CompletableFuture;
import javax.net.ssl.*;

// Sends the requests that its standard input asks for, with the JDK's HttpClient as it is by default.
//
// In:  session, how many at once, method, URL, body (none, known, unknown), its size, seconds, headers "name: value"; with tabs.
// Out: per response its version, status, headers "name: value" and body, the latter two in base64; or "error" and its text.
public class Client {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        out.println("ready");
        String session = "";
        HttpClient client = null;
        for (String line; (line = in.readLine()) != null; ) {
            String[] f = line.split("\t");
            if (!f[0].equals(session)) {
                session = f[0];
                client = HttpClient.newBuilder().proxy(HttpClient.Builder.NO_PROXY).sslContext(trusting()).build();
            }
            List<CompletableFuture<HttpResponse<byte[]>>> sent = new ArrayList<>();
            for (int i = 0; i < Integer.parseInt(f[1]); i++) {
                sent.add(client.sendAsync(request(f), HttpResponse.BodyHandlers.ofByteArray()));
            }
            for (var s : sent) {
                try {
                    out.println(text(s.get()));
                } catch (Exception e) {
                    out.println("error\t" + e.toString().replaceAll("\\s", " "));
                }
            }
        }
    }

    static HttpRequest request(String[] f) {
        byte[] body = new byte[Integer.parseInt(f[5])];
        Arrays.fill(body, (byte) 'x');
        var publisher = switch (f[4]) {
            case "known" -> BodyPublishers.ofByteArray(body);
            case "unknown" -> BodyPublishers.ofInputStream(() -> new ByteArrayInputStream(body));
            default -> BodyPublishers.noBody();
        };
        var r = HttpRequest.newBuilder(URI.create(f[3])).timeout(Duration.ofSeconds(Integer.parseInt(f[6])));
        for (int i = 7; i < f.length; i++) {
            int colon = f[i].indexOf(':');
            if (f[i].startsWith("Expect:")) {
                r.expectContinue(true); // HttpClient does not let the header be set
            } else {
                r.header(f[i].substring(0, colon), f[i].substring(colon + 1).strip());
            }
        }
        return (f[2].equals("GET") ? r.GET() : r.method(f[2], publisher)).build();
    }

    static String text(HttpResponse<byte[]> r) {
        StringBuilder headers = new StringBuilder();
        r.headers().map().forEach((name, values) -> values.forEach(v -> headers.append(name + ": " + v + "\n")));
        var base64 = Base64.getEncoder();
        return r.version() + "\t" + r.statusCode() + "\t" + base64.encodeToString(headers.toString().getBytes(StandardCharsets.UTF_8))
            + "\t" + base64.encodeToString(r.body());
    }

    // The servers' certificates are made for tests.
    static SSLContext trusting() throws Exception {
        SSLContext c = SSLContext.getInstance("TLS");
        c.init(null, new TrustManager[] {new X509ExtendedTrustManager() {
            public void checkClientTrusted(X509Certificate[] chain, String type) {}
            public void checkServerTrusted(X509Certificate[] chain, String type) {}
            public void checkClientTrusted(X509Certificate[] chain, String type, java.net.Socket s) {}
            public void checkServerTrusted(X509Certificate[] chain, String type, java.net.Socket s) {}
            public void checkClientTrusted(X509Certificate[] chain, String type, SSLEngine e) {}
            public void checkServerTrusted(X509Certificate[] chain, String type, SSLEngine e) {}
            public X509Certificate[] getAcceptedIssuers() { return new X509Certificate[0]; }
        }}, null);
        return c;
    }
}
