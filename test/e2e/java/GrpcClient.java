import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import io.grpc.stub.ClientCalls;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/**
 * A grpc-java client that finds its servers by xDS, with its bootstrap in the file that GRPC_XDS_BOOTSTRAP names. Each
 * line on stdin, {@code ID TARGET SECONDS}, is a call with this deadline; on stdout follows {@code ID answer NAME} or
 * {@code ID error CODE MESSAGE}.
 */
final class GrpcClient {
  private static final MethodDescriptor<byte[], byte[]> WHO =
      MethodDescriptor.newBuilder(new Bytes(), new Bytes())
          .setType(MethodDescriptor.MethodType.UNARY)
          .setFullMethodName("test.Backend/Who")
          .build();

  /** A message's bytes as they are. */
  private static final class Bytes implements MethodDescriptor.Marshaller<byte[]> {
    @Override
    public InputStream stream(byte[] value) {
      return new ByteArrayInputStream(value);
    }

    @Override
    public byte[] parse(InputStream stream) {
      try {
        return stream.readAllBytes();
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    }
  }

  public static void main(String[] args) throws IOException {
    System.out.println("version " + args[0]);
    Map<String, Channel> channels = new HashMap<>();
    ExecutorService calls = Executors.newCachedThreadPool();
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      String[] words = line.split(" ");
      Channel channel =
          channels.computeIfAbsent(
              words[1],
              target -> Grpc.newChannelBuilder(target, InsecureChannelCredentials.create()).build());
      long seconds = Long.parseLong(words[2]);
      calls.execute(() -> System.out.println(words[0] + " " + call(channel, seconds)));
    }
    System.exit(0);
  }

  private static String call(Channel channel, long seconds) {
    CallOptions options = CallOptions.DEFAULT.withDeadlineAfter(seconds, TimeUnit.SECONDS);
    try {
      byte[] answer = ClientCalls.blockingUnaryCall(channel, WHO, options, new byte[0]);
      return "answer " + new String(answer, StandardCharsets.UTF_8);
    } catch (RuntimeException error) {
      Status status = Status.fromThrowable(error);
      String message = String.valueOf(status.getDescription()).replace('\n', ' ');
      return "error " + status.getCode().value() + " " + message;
    }
  }
}
