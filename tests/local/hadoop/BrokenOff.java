import java.io.InputStream;
import java.net.URI;
import java.util.EnumSet;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;

/** Makes each call of Spark's client while a relay breaks it off once, and prints which calls fail. */
public class BrokenOff {
    static FileContext files;
    static FileSystem older;
    static Path root;

    /** Arguments: location, address of the relay's switch, and settings as name=value. */
    public static void main(String[] arguments) throws Exception {
        root = new Path(arguments[0]);
        Configuration settings = new Configuration();
        for (int number = 2; number < arguments.length; number++) {
            String[] setting = arguments[number].split("=", 2);
            settings.set(setting[0], setting[1]);
        }
        files = FileContext.getFileContext(root.toUri(), settings);
        older = root.getFileSystem(settings);
        String[] calls = {
            "GETFILESTATUS", "LISTSTATUS", "OPEN", "CREATE", "DATA", "RENAME", "DELETE", "MKDIRS"
        };
        for (String when : new String[] {"before", "after", "within"}) {
            for (String call : calls) {
                Path there = write(new Path(root, when + call));
                breakOff(arguments[1], when, call);
                String result = "done";
                try {
                    make(call, there);
                } catch (Exception error) {
                    result = error.getClass().getName();
                }
                breakOff(arguments[1], "never", "");
                System.out.println(when + " " + call + " " + result);
            }
        }
    }

    static void make(String call, Path there) throws Exception {
        Path other = new Path(there + "-other");
        switch (call) {
            case "GETFILESTATUS" -> files.getFileStatus(there);
            case "LISTSTATUS" -> older.listStatus(root);
            case "OPEN" -> {
                try (FSDataInputStream in = files.open(there)) {
                    if (in.readAllBytes().length != 100_000) {
                        throw new IllegalStateException("a part of the file");
                    }
                }
            }
            case "CREATE", "DATA" -> write(other);
            case "RENAME" -> {
                Path written = new Path(root, "." + other.getName() + "." + UUID.randomUUID() + ".tmp");
                files.rename(write(written), other, Options.Rename.NONE);
            }
            case "DELETE" -> files.delete(there, false);
            default -> files.mkdir(other, FsPermission.getDirDefault(), true);
        }
    }

    static Path write(Path path) throws Exception {
        EnumSet<CreateFlag> flags = EnumSet.of(CreateFlag.CREATE, CreateFlag.OVERWRITE);
        Options.ChecksumOpt none = Options.ChecksumOpt.createDisabled();
        Options.CreateOpts parents = Options.CreateOpts.createParent();
        try (FSDataOutputStream out =
                files.create(path, flags, Options.CreateOpts.checksumParam(none), parents)) {
            out.write(new byte[100_000]);
        }
        return path;
    }

    static void breakOff(String address, String when, String call) throws Exception {
        URI uri = URI.create(address + "?when=" + when + "&op=" + call);
        try (InputStream in = uri.toURL().openStream()) {
            in.readAllBytes();
        }
    }
}
