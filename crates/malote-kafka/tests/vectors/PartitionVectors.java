// Prints the partitions that Kafka's own Java client computes for a table of keys.
//
// Regenerate with JDK 17 and the jars of dev/kafka:
//
//   java -cp 'dev/kafka/target/libs/*' crates/malote-kafka/tests/vectors/PartitionVectors.java \
//     > crates/malote-kafka/tests/vectors/partitions.tsv
//
// One key a line: its bytes in hexadecimal, murmur2 as a signed number, then the partition among
// 1, 3, 6, 12, 50 and 1000.

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Random;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;
import org.apache.kafka.common.utils.Utils;

public class PartitionVectors {
    static final int[] COUNTS = {1, 3, 6, 12, 50, 1000};

    public static void main(String[] args) {
        var keys = new LinkedHashSet<String>(); // hexadecimal, so that equal keys are one
        var hex = HexFormat.of();
        List<String> texts = new ArrayList<>(List.of(
            "", "a", "ab", "abc", "abcd", "abcde", "21", "foobar", "a-little-bit-long-string",
            "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", "ação", "coração", "ß", "日本語", "🦀", "\u0000",
            "\uFFFF", " ", "\n", "payment"));
        for (int n = 0; n < 300; n++) texts.add("k" + n);
        for (int n = 0; n < 100; n++) texts.add("conta-" + n + "-ção");
        for (String text : texts) keys.add(hex.formatHex(text.getBytes(StandardCharsets.UTF_8)));
        var random = new Random(20251130);
        while (keys.size() < 1000) { // identifiers, and bytes of any kind and length
            byte[] bytes = new byte[keys.size() % 3 == 0 ? 16 : random.nextInt(70)];
            random.nextBytes(bytes);
            boolean text = keys.size() % 2 == 0;
            keys.add(hex.formatHex(text ? hex.formatHex(bytes).getBytes(StandardCharsets.US_ASCII) : bytes));
        }
        for (String key : keys) {
            byte[] bytes = hex.parseHex(key);
            var line = new StringBuilder(key).append('\t').append(Utils.murmur2(bytes));
            for (int count : COUNTS) line.append('\t').append(BuiltInPartitioner.partitionForKey(bytes, count));
            System.out.println(line);
        }
    }
}
