import java.util.Arrays;
import java.util.EnumSet;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;

/** Makes the calls of Spark's CheckpointFileManager and of its RocksDB, and prints what came of them. */
public class Checkpoint {
    static FileContext files;
    static Path root;

    public static void main(String[] arguments) throws Exception {
        root = new Path(arguments[0]);
        files = FileContext.getFileContext(root.toUri(), new Configuration());
        files.mkdir(new Path(root, "offsets"), FsPermission.getDirDefault(), true);
        Path first = new Path(root, "offsets/0");
        files.rename(scratch(100, 'a'), first, Options.Rename.NONE);
        Path other = scratch(3_000_000, 'b');
        try {
            files.rename(other, first, Options.Rename.NONE);
        } catch (FileAlreadyExistsException error) {
            System.out.println("exists " + length(first));
        }
        files.rename(other, first, Options.Rename.OVERWRITE);
        System.out.println("replaced " + length(first));
        for (FileStatus found : files.util().listStatus(new Path(root, "offsets"))) {
            System.out.println("listed " + found.getPath().getName() + " " + found.getLen());
        }
        try (FSDataInputStream in = files.open(first)) {
            System.out.println("read " + in.readAllBytes().length);
            in.seek(2_999_990);
            System.out.println("seek " + in.readAllBytes().length);
        }
        FileSystem older = root.getFileSystem(new Configuration());
        Path whole = new Path(root, "1-whole.sst");
        try (FSDataOutputStream out = older.create(whole, true)) {
            out.write(new byte[20]);
        }
        System.out.println("refused " + !older.rename(whole, first));
        System.out.println("deleted " + older.delete(whole, false) + " " + older.delete(whole, false));
        System.out.println("exists " + files.util().exists(whole));
        for (Path wrong : new Path[] {whole, new Path(root.toString() + "/../../elsewhere")}) {
            try {
                files.open(wrong);
            } catch (Exception error) {
                System.out.println(error.getClass().getName());
            }
        }
        System.out.println("deleted " + files.delete(new Path(root, "offsets"), true));
    }

    /** Write a file under a name as Spark chooses it. */
    static Path scratch(int size, char content) throws Exception {
        Path path = new Path(root, "offsets/.0." + UUID.randomUUID() + ".tmp");
        byte[] bytes = new byte[size];
        Arrays.fill(bytes, (byte) content);
        EnumSet<CreateFlag> flags = EnumSet.of(CreateFlag.CREATE, CreateFlag.OVERWRITE);
        Options.ChecksumOpt none = Options.ChecksumOpt.createDisabled();
        try (FSDataOutputStream out =
                files.create(path, flags, Options.CreateOpts.checksumParam(none))) {
            out.write(bytes);
        }
        return path;
    }

    static long length(Path path) throws Exception {
        return files.getFileStatus(path).getLen();
    }
}
